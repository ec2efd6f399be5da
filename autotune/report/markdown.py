"""The answer in Markdown, as a comment for a pull request."""

from __future__ import annotations

import re

from autotune.core.notices import costliest_first
from autotune.harmless import plain
from autotune.report import phrases
from autotune.report.answer import in_short, sentences, to_know
from autotune.report.certainty import certainty
from autotune.report.change_rows import change_rows, unchanged_values
from autotune.report.durations import durations
from autotune.report.losses import losses_phrase
from autotune.report.use import usage_tabs
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView, facts_of
from autotune.units import format_share

SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!~&@])")
TICKS = re.compile("`+")


def markdown(view: StudyView, best: Recommendation) -> str:
    """Return headline, what changes, numbers, warnings, and how to use it."""
    first, *others = sentences(best, view)
    parts = [f"**{escaped(first)}**", *map(escaped, others)]
    rows = change_rows(best, view)
    if rows:
        head = ["| change | today | tuned | worth |", "| --- | --- | --- | --- |"]
        cells = [(row.name, row.today, row.tuned, row.worth) for row in rows]
        parts.append("\n".join([*head, *(f"| {' | '.join(map(escaped, row))} |" for row in cells)]))
    parts.append("\n".join(f"- {name}: {escaped(text)}" for name, text in _numbers(view, best)))
    warnings = [f"> {escaped(one.text)}" for one in costliest_first(to_know(best))]
    parts += ["\n>\n".join(warnings)] * bool(warnings)
    use = usage_tabs(best, view)[0]
    kind = "bash" if use.name == "command" else "python"
    fence = "`" * max(3, *(len(found) + 1 for found in TICKS.findall(use.text)), 0)
    code = f"{fence}{kind}\n{use.text}\n{fence}"
    parts.append(f"<details><summary>Use it</summary>\n\n{code}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def _numbers(view: StudyView, best: Recommendation) -> list[tuple[str, str]]:
    sure = certainty(best)
    stays = unchanged_values(best, view)
    return [
        ("speed", ", ".join(phrases.speed_parts(best))),
        *([("certainty", f"{sure.word}: {sure.why}")] if sure else []),
        ("time", f"{durations(best, facts_of(best, view))} · waiting for data {format_share(best.data_wait_share)}"),
        ("memory", phrases.memory_phrase(best)),
        ("losses", losses_phrase(best)),
        *([("kept", stays)] if stays else []),
        *(("your code", in_short(one)) for one in best.slow_lines),
        ("machine", phrases.environment_line(best.environment)),
    ]


def escaped(text: str) -> str:
    """`text` on one line, in which no character is markup."""
    return SPECIAL.sub(r"\\\1", plain(text))
