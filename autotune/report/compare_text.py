"""A comparison in words: for the terminal, and as a page."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from autotune.harmless import cropped
from autotune.knobs import touched
from autotune.report import phrases
from autotune.report.compare import Comparison, DifferenceKind, SharedConfig, Side
from autotune.report.templates import Served, render_template
from autotune.study.recommendation import Recommendation
from autotune.study.shown import moving, shown_config
from autotune.units import format_rate, format_speedup

LEAST_CELL = 20  # characters, however narrow a terminal is
LEADING_CHARACTERS = 8  # characters before the first that differs
TITLES: tuple[tuple[DifferenceKind, str], ...] = (
    ("machine", "hardware"),
    ("software", "software"),
    ("training", "what is trained"),
    ("question", "what was asked"),
)


def sentence(comparison: Comparison) -> str:
    """Return the comparison in one sentence."""
    a, b = comparison.a.study, comparison.b.study
    if comparison.differs_in("training"):
        return f"{a} and {b} train different things; their throughputs cannot be compared."
    if comparison.overall is None:
        return f"{a} and {b} share no configuration that both could use; there is no ratio."
    ratio = phrases.factor_phrase(comparison.overall.estimate, comparison.overall.low, comparison.overall.high)
    count, how = len(comparison.compared), "confirmed" if comparison.compared[0].is_confirmed else "measured"
    what = "the one configuration" if count == 1 else f"the {count} configurations"
    return f"{b} runs {what} that both {how} at {ratio} the throughput of {a}."


def caution(comparison: Comparison) -> str:
    """Return other possible causes of the ratio; empty without a ratio."""
    if comparison.overall is None:
        return ""
    different = [title for kind, title in TITLES if comparison.differs_in(kind)]
    if different:
        effect = f"They differ in {', '.join(different)}: a ratio is the effect of all of that together."
    else:
        effect = "Nothing that was recorded differs: a ratio is the effect of code, data, or the state of the machine."
    return f"{effect} The two were not measured in turns, which no interval covers."


def answer_rows(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Return rows of results: name, value of A, value of B."""
    rows: tuple[tuple[str, Callable[[Side], str]], ...] = (
        ("begun", lambda side: side.begun[:10] or "–"),
        ("probes", lambda side: str(side.probes)),
        ("recommended", lambda side: _best(side, lambda best: shown_config(best.params, moving(side.request)))),
        ("speed", lambda side: _best(side, lambda best: ", ".join(phrases.speed_parts(best)))),
        ("over its baseline", lambda side: _best(side, phrases.speedup_phrase)),
    )
    return [(name, text(comparison.a), text(comparison.b)) for name, text in rows]


def shared_rows(comparison: Comparison) -> list[tuple[str, str, str, str, str]]:
    """Return rows of configuration, B over A, A, B, and the kind of measurement."""
    knobs = touched(one.config for one in comparison.shared)
    return [
        (
            shown_config(one.config.values, knobs),
            f"{format_speedup(one.ratio)}×",
            format_rate(one.a_samples_per_second),
            format_rate(one.b_samples_per_second),
            _evidence(one),
        )
        for one in comparison.shared
    ]


def render_comparison(comparison: Comparison, *, served: Served | None = None) -> str:
    """Return the page of a comparison; if `served`, with links to the pages of its studies."""
    return render_template(
        "compare.html",
        served=served,
        comparison=comparison,
        differences=_differences(comparison),
        sentence=sentence(comparison),
        caution=caution(comparison),
        answer_rows=answer_rows(comparison),
        shared_rows=shared_rows(comparison),
    )


def comparison_block(comparison: Comparison, width: int | None = None) -> Text:
    """Return the comparison for a terminal with lines of `width` characters; None: of any length."""
    block = Text()
    a, b = phrases.plain(comparison.a.study), phrases.plain(comparison.b.study)
    _table(block, [("", f"A: {a}", f"B: {b}"), *answer_rows(comparison)])
    for title, rows in _differences(comparison):
        block.append(f"\n{title} differs\n", "bold")
        names = max(len(name) for name, _, _ in rows) + len("  " * 3)  # with the gap between columns
        most = None if width is None else max(LEAST_CELL, (width - names) // 2)
        _table(block, [(f"  {name}", *_fitting(a, b, most)) for name, a, b in rows])
    if comparison.shared:
        block.append("\nMeasured by both, samples/s\n", "bold")
        shared = [(f"  {name}", *rest) for name, *rest in shared_rows(comparison)]
        _table(block, [("  configuration", "B over A", "A", "B", "measured"), *shared])
        block.append(f"\n{caution(comparison)}\n", "yellow")
    return block.append(f"\n{phrases.plain(sentence(comparison))}", "bold")


def _fitting(a: str, b: str, most: int | None) -> tuple[str, str]:
    """Return both in at most `most` characters, beginning shortly before the first difference."""
    a, b = phrases.plain(a), phrases.plain(b)
    if most is None or max(len(a), len(b)) <= most:
        return a, b
    alike = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    start = max(0, alike - LEADING_CHARACTERS)
    return cropped(f"{'…' * (start > 0)}{a[start:]}", most), cropped(f"{'…' * (start > 0)}{b[start:]}", most)


def _table(block: Text, rows: list[tuple[str, ...]]) -> None:
    rows = [(row[0].rstrip(), *(phrases.plain(cell) for cell in row[1:])) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        block.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n")


def _differences(comparison: Comparison) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Return the differences by kind: the name of each, A's value and B's."""
    found = [
        (title.capitalize(), [(d.name, d.a or "–", d.b or "–") for d in comparison.differs_in(kind)])
        for kind, title in TITLES
    ]
    return [(title, rows) for title, rows in found if rows]


def _evidence(one: SharedConfig) -> str:
    names = {True: "confirmed", False: "in the search"}
    a, b = names[one.a_is_confirmed], names[one.b_is_confirmed]
    return a if a == b else f"A {a}, B {b}"


def _best(side: Side, text: Callable[[Recommendation], str]) -> str:
    return "no recommendation" if side.recommendation is None else text(side.recommendation)
