"""What the server adds to a page: the way back, the raw trials and their caveats, the script that keeps it live."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autotune.report.templates import templates

HERE = Path(__file__).parent

_templates = templates(HERE)


@dataclass(frozen=True, kw_only=True)
class RawLink:
    """Where optuna-dashboard shows the trials; no address where the extra is not installed."""

    address: str | None


def served(page: str, *, nonce: str, tag: str, home: str | None = None, raw: RawLink | None = None) -> str:
    """The `page` as the server sends it. `tag` names this version of it, `home` leads to the list of studies."""
    before, body, rest = page.partition("<body>")
    rest, end, after = rest.rpartition("</body>")
    above = _templates.get_template("above.html").render(home=home)
    below = _templates.get_template("below.html").render(
        raw=raw, nonce=nonce, tag=tag, script=(HERE / "live.js").read_text(encoding="utf-8")
    )
    return "".join((before, body, above, rest, below, end, after))
