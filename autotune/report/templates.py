"""The templates of the pages: values are escaped, and a security policy allows only our own style and script."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from autotune.harmless import plain_lines, python
from autotune.report import phrases
from autotune.report.arrangement import ROWS_STYLE
from autotune.report.chart import CHART_STYLE
from autotune.units import counted, format_bytes, format_clock, format_rate, format_seconds, format_share

HERE = Path(__file__).parent
BETWEEN_TICKS = re.compile("`([^`]+)`")
BETWEEN_WORDS = re.compile("[×/](?=\\w)")
OPTION = re.compile(r"--\w[\w-]*")
STYLE = CHART_STYLE + (HERE / "page.css").read_text(encoding="utf-8") + ROWS_STYLE
SCRIPT = (HERE / "page.js").read_text(encoding="utf-8")
LIVE = (HERE / "live.js").read_text(encoding="utf-8")


def _hash(source: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() + "'"


# Only this style and script are allowed, and nothing is loaded; the icon is empty, so that browsers do not request one.
POLICY = (
    f"default-src 'none'; img-src data:; style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}; "
    "base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True, kw_only=True)
class Served:
    """Values that the server adds to a page, so that it can update itself."""

    nonce: str  # of style and script in the server's content security policy
    tag: str  # of this version of the page
    home: str = ""  # address of the list of studies


def _with_code(text: str) -> Markup:
    """Return the escaped text, with text between backticks as code; lines do not break inside an option."""
    code = BETWEEN_TICKS.sub(r"<code>\1</code>", str(escape(plain_lines(text))))  # escaped before
    return Markup(OPTION.sub(r'<span class="whole">\g<0></span>', code))


def _breakable(title: str) -> Markup:
    """Return the escaped title of a column, with places where it may break."""
    return Markup(BETWEEN_WORDS.sub(r"<wbr>\g<0>", str(escape(plain_lines(title)))))


def _printable(value: object) -> object:
    return plain_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


# All values in templates are escaped, printable text.
_templates = Templates(
    loader=FileSystemLoader(HERE),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    finalize=_printable,
)
_templates.filters |= {"rate": format_rate, "bytes": format_bytes, "seconds": format_seconds, "share": format_share}
_templates.filters |= {"python": python, "counted": counted, "clock": format_clock, "code": _with_code}
_templates.filters |= {"breakable": _breakable}


def render_template(name: str, *, served: Served | None = None, **values: object) -> str:
    """Return the page from a template. Without `served` it is a file with its own content security policy."""
    return _templates.get_template(name).render(
        served=served,
        policy=POLICY,
        style=Markup(STYLE),  # our own: it contains nothing of a study
        script=Markup(SCRIPT),
        live_script=Markup(LIVE),
        phrases=phrases,
        **values,
    )
