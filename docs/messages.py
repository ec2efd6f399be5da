"""Writes `docs/messages.md` from the codes of warnings and reasons: `python docs/messages.py`."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from autotune.core.codes import Code

PAGE = Path(__file__).parent / "messages.md"
HEAD = """\
# Warnings and reasons

Written by `make docs` from `autotune/core/codes.py`. An answer carries each of them as a code with its numbers, in
`best.json` and in `autotune best --json`: `{"code": "loader-bound", "numbers": {"wait_share": 0.34, "workers": 16},
"text": "..."}`. Programs read code and numbers; the text may change with the next version. A number may be such a
message itself, or a list of them: `{"code": "probes-left-out", "numbers": {"count": 1, "probes": [{"code":
"slowed-probe", "numbers": {"number": 7, ...}, ...}]}, ...}`. What stands in square brackets is left out where a number
is not known, or room is short. What is not searched is listed before an answer: `autotune check --json` and
`autotune search --dry-run --json` list it in the same form, as `not_searched`.
`autotune doctor --json` carries those of 13xx, with the next step as `advice`.
"""
TITLES = (
    "Sentences of earlier versions", "Warnings", "Reasons for the choice", "Why a configuration was not chosen",
    "Losses", "Configurations that were not tried", "Gains other than speed",
    "Why a probe does not count", "Why a change was not tested, or is kept all the same", "Why memory is not predicted",
    "What no setting mends",
    "What other messages hold", "What is not searched", "What doctor says of a machine",
)  # fmt: skip
SAID = {
    "{kind:seen}": "*what was seen*", "{kind:instead}": "*what to write*",  # of a slow line
    "{labels:them}": "it", "{batches:them}": "it", "{values:do}": "does",
}  # fmt: skip


def text() -> str:
    """The whole page."""
    parts = [HEAD]
    for kind, codes in groupby(Code, key=lambda code: code.number // 100):
        parts += [f"## {TITLES[kind]}", "", "| number | code | meaning | next step |", "| --- | --- | --- | --- |"]
        parts += [f"| {c.number} | `{c}` | {_named(c.sentence)} | {_named(c.next_step)} |" for c in codes]
        parts.append("")
    return "\n".join(parts)


def _named(sentence: str) -> str:
    """The sentence with the names of its numbers in place of them; what may be left out in brackets."""
    for number, said in SAID.items():
        sentence = sentence.replace(number, said)
    return re.sub(r"\{(\w+)[^}]*\}", r"*\1*", sentence).replace("|", "\\|").replace("__", "\\_\\_")


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
