"""A comparison told: the sentences about what it means and what it cannot mean, the terminal's text, and the page."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from autotune.report import phrases
from autotune.report.compare import Comparison, Kind, Ratio, Side
from autotune.report.templates import render_template
from autotune.tuning.recommendation import Recommendation
from autotune.units import format_rate, format_share

MOST_LINES = 20  # of shared configurations, where a person reads them on a terminal
KINDS: tuple[tuple[Kind, str], ...] = (
    ("machine", "The hardware"),
    ("software", "The software"),
    ("training", "What is trained"),
    ("question", "What was asked"),
)


def cautions(comparison: Comparison) -> tuple[str, ...]:
    """What cannot be concluded, the gravest first."""
    said = []
    if comparison.differs_in("training"):
        said.append(
            f"Not the same training ({_names(comparison, 'training')}): samples/s of one say nothing about the other."
        )
    if comparison.differs_in("machine"):
        said.append(
            f"Different hardware ({_named(comparison, 'machine')}): throughput compares the machines, not the "
            "configurations, and each recommendation holds on its own machine only."
        )
    if comparison.differs_in("software"):
        said.append(
            f"Different software ({_named(comparison, 'software')}): a ratio is the effect of all of that together, "
            "not of one part."
        )
    if comparison.differs_in("question"):
        said.append(
            f"They were asked different things ({_names(comparison, 'question')}): the best values answer different "
            "questions; only configurations that both measured compare like with like."
        )
    if not comparison.differences:
        said.append(
            "Nothing that was recorded differs: a difference comes from the code, the data, or the machine's state."
        )
    said.append(
        "The two were not measured in turns: whatever the machines did differently at the two times is in every ratio, "
        "and no interval here covers it."
    )
    if not comparison.shared:
        said.append("No configuration was usable in both: only the recommendations can be laid side by side.")
    elif all(one.a_probes == one.b_probes == 1 for one in comparison.shared):
        said.append(
            "Nothing that both measured was repeated: the intervals come from within single probes, and are too narrow."
        )
    return tuple(said)


def sentence(comparison: Comparison) -> str:
    """The comparison as a person would repeat it."""
    a, b = comparison.a.study, comparison.b.study
    if comparison.differs_in("training"):
        return f"{a} and {b} are studies of different trainings; their throughputs cannot be compared."
    if comparison.overall is not None:
        count = len(comparison.shared)
        what = "the one configuration" if count == 1 else f"the {count} configurations"
        return f"{b} runs {what} that both measured at {ratio(comparison.overall)} the throughput of {a}."
    if comparison.best is not None:
        return (
            f"The recommendation of {b} has {ratio(comparison.best)} the throughput of that of {a}, no more is shared."
        )
    return (
        f"{a} and {b} share no measured configuration, and not both have a recommendation: there is no ratio to tell."
    )


def ratio(value: Ratio) -> str:
    """`1.12× (1.05 to 1.19)`."""
    told = f"{phrases.format_speedup(value.estimate)}×"
    if value.low is None or value.high is None:
        return told
    return f"{told} ({phrases.format_speedup(value.low)} to {phrases.format_speedup(value.high)})"


def best_rows(comparison: Comparison) -> list[tuple[str, str, str]]:
    """What each came to, by name: for A, for B."""
    told: tuple[tuple[str, Callable[[Side], str]], ...] = (
        ("begun", lambda side: side.begun[:10] or "–"),
        ("probes", lambda side: str(side.probes)),
        ("recommended", lambda side: _best(side, lambda best: phrases.short(best.params))),
        ("speed", lambda side: _best(side, phrases.rate_phrase)),
        ("over its baseline", lambda side: _best(side, _speedup)),
        ("memory", lambda side: _best(side, phrases.memory_phrase)),
    )
    return [(name, tell(comparison.a), tell(comparison.b)) for name, tell in told]


def transfers(comparison: Comparison) -> tuple[str, ...]:
    """How far either recommendation would have come in the other study."""
    told = []
    a, b = comparison.a.study, comparison.b.study
    for share, mine, theirs in ((comparison.a_choice_on_b, a, b), (comparison.b_choice_on_a, b, a)):
        if share is not None:
            told.append(
                f"The recommendation of {mine}, as measured by {theirs}, reaches {format_share(share)} of its best."
            )
    return tuple(told)


def render_comparison(comparison: Comparison, *, links: bool = False, nonce: str = "") -> str:
    """The page of a comparison; with `links` its studies lead to their pages on the server."""
    return render_template(
        "compare.html",
        nonce=nonce,
        scripted=True,
        comparison=comparison,
        links=links,
        kinds=[(title, comparison.differs_in(kind)) for kind, title in KINDS],
        sentence=sentence(comparison),
        cautions=cautions(comparison),
        transfers=transfers(comparison),
        best_rows=best_rows(comparison),
        ratio=ratio,
        short=phrases.short,
    )


def comparison_block(comparison: Comparison, *, every: bool) -> Text:
    """The comparison for a terminal; of the shared configurations the first ones, or `every` one."""
    block = Text()
    a, b = phrases.plain(comparison.a.study), phrases.plain(comparison.b.study)
    _table(block, [("", f"A: {a}", f"B: {b}"), *best_rows(comparison)])
    if comparison.best is not None:
        block.append(f"B's best over A's: {ratio(comparison.best)}\n")
    for kind, title in KINDS:
        differences = comparison.differs_in(kind)
        if differences:
            block.append(f"\n{title} differs\n", "bold")
            _table(block, [(f"  {d.name}", d.a or "–", d.b or "–") for d in differences])
    if comparison.shared:
        shown = comparison.shared if every else comparison.shared[:MOST_LINES]
        block.append("\nMeasured by both, samples/s\n", "bold")
        _table(
            block,
            [
                ("  configuration", "A", "B", "B over A", "probes"),
                *(
                    (
                        f"  {phrases.short(one.config.values)}",
                        format_rate(one.a_samples_per_second),
                        format_rate(one.b_samples_per_second),
                        ratio(one.ratio),
                        f"{one.a_probes}, {one.b_probes}",
                    )
                    for one in shown
                ),
            ],
        )
        if len(shown) < len(comparison.shared):
            block.append(f"  and {len(comparison.shared) - len(shown)} slower ones: --json has all\n", "dim")
    if comparison.fates:
        block.append("\nUsable in one of the two only\n", "bold")
        _table(block, [(f"  {phrases.short(fate.config.values)}", fate.a, fate.b) for fate in comparison.fates])
    block.append("\n")
    for line in transfers(comparison):
        block.append(f"{line}\n")
    for caution in cautions(comparison):
        block.append(f"! {phrases.plain(caution)}\n", "yellow")
    return block.append(f"\n{phrases.plain(sentence(comparison))}", "bold")


def _table(block: Text, rows: list[tuple[str, ...]]) -> None:
    """Rows on common columns; the last one is not padded."""
    rows = [tuple(phrases.plain(cell) if place else cell.rstrip() for place, cell in enumerate(row)) for row in rows]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        block.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n")


def _best(side: Side, tell: Callable[[Recommendation], str]) -> str:
    return "no recommendation" if side.recommendation is None else tell(side.recommendation)


def _speedup(best: Recommendation) -> str:
    if best.speedup is None:
        return "–"
    spread = phrases.interval(best)
    return f"{phrases.format_speedup(best.speedup)}×{f' ({spread})' if spread else ''}"


def _named(comparison: Comparison, kind: Kind) -> str:
    """`torch 2.8.0 and 2.13.0, driver 570 and 580`."""
    return ", ".join(f"{d.name} {d.a or '–'} and {d.b or '–'}" for d in comparison.differs_in(kind))


def _names(comparison: Comparison, kind: Kind) -> str:
    """`target, model`."""
    return ", ".join(difference.name for difference in comparison.differs_in(kind))
