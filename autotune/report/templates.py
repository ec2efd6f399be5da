"""The templates of the pages: escaping is on, style and script are ours alone and named by a security policy."""

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


# Nothing is loaded, and nothing runs but this very style and script; the icon is empty, so that none is asked for.
POLICY = (
    f"default-src 'none'; img-src data:; style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}; "
    "base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True, kw_only=True)
class Served:
    """The part that the server adds to a page, so that it keeps itself up to date."""

    nonce: str  # of style and script in the server's content security policy
    tag: str  # of this version of the page
    home: str = ""  # address of the list of studies


def _with_code(text: str) -> Markup:
    """The text, escaped, with what stands between two backticks as code; no line ends within an option."""
    code = BETWEEN_TICKS.sub(r"<code>\1</code>", str(escape(plain_lines(text))))  # escaped before
    return Markup(OPTION.sub(r'<span class="whole">\g<0></span>', code))


def _breakable(title: str) -> Markup:
    """The title of a column, escaped, with places where it may break."""
    return Markup(BETWEEN_WORDS.sub(r"<wbr>\g<0>", str(escape(plain_lines(title)))))


def _printable(value: object) -> object:
    return plain_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


# Whatever the templates are given is text, escaped, and printable.
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
    """The page from a template. Without `served` it is a file, which brings its own content security policy."""
    return _templates.get_template(name).render(
        served=served,
        policy=POLICY,
        style=Markup(STYLE),  # ours: nothing of a study is in it
        script=Markup(SCRIPT),
        live_script=Markup(LIVE),
        phrases=phrases,
        **values,
    )
