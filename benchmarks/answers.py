"""What is known about one target of the catalogue, kept between calls; and its lines in the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autotune.core.records import PROTOCOL_VERSION, Environment, Record, Value
from benchmarks.peers import OURS, Pick, held
from benchmarks.surfaces.plain import Trained, ratios
from benchmarks.surfaces.surface import Surface
from benchmarks.surfaces.tasks import Task
from benchmarks.surfaces.words import described, row, share_of
from benchmarks.utilisation import UNKNOWN, peak_flops, peaks_of, utilisation

USUAL, EXPERT, BEST = "usual defaults", "expert's", "best of the grid"
COLUMNS = (
    "target", "tool", "pick", "trained as", "tries", "out of memory", "took", "samples/s", "of the fastest", "MFU",
)  # fmt: skip


class Answer(Record, frozen=True, kw_only=True):
    """One target: who picked what, and what became of each pick in the plain loop. Empty: not asked yet."""

    protocol: int = PROTOCOL_VERSION
    task: str
    command: str  # that goes on with it
    environment: Environment
    versions: dict[str, str]
    time_budget: str = ""  # of the search; empty: the product's default
    flops_per_sample: float | None = None
    convolves: bool = False  # most of these
    picks: dict[str, Pick]
    trained: dict[str, Trained]  # by the same names; several rounds each
    notes: tuple[str, ...] = ()  # stages that failed, and of what


def best_of(surface: Surface) -> Pick:
    """The fastest cell of an exhaustive grid, as if a tool had picked it."""
    config, _ = surface.best
    return Pick(
        values=dict(config.values), tries=len(surface.cells), out_of_memory=surface.out_of_memory,
        seconds=surface.seconds, had_run=True,
    )  # fmt: skip


def configs(answer: Answer, task: Task) -> dict[str, dict[str, Value]]:
    """What is trained for every pick that there is, at the held global batch."""
    return {name: held(pick.values, task) for name, pick in answer.picks.items() if pick.values is not None}


def lines(answer: Answer, task: Task) -> Iterator[str]:
    """One line of the table for each tool."""
    fastest = max((each.rate or 0.0 for each in answer.trained.values()), default=0.0) or 1.0
    trained_as = configs(answer, task)
    for name, pick in answer.picks.items():
        trained = answer.trained.get(name, Trained())
        started = (answer.task, name, described(pick.values) if pick.values is not None else pick.note)
        told = ("–", "–", "–") if name == USUAL else (pick.tries or "–", pick.out_of_memory, f"{pick.seconds:.0f} s")
        values = trained_as.get(name)
        if values is None or trained.rate is None:
            yield row(*started, described(values) if values else "–", *told, trained.died or "–", "–", "–")
            continue
        yield row(
            *started, described(values), *told, f"{trained.rate:,.0f}", f"{trained.rate / fastest:.0%}",
            share(answer, trained.rate, values),
        )  # fmt: skip


def share(answer: Answer, rate: float, values: Mapping[str, Value]) -> str:
    """The model-FLOP utilisation with its arithmetic, or why there is none."""
    device = answer.environment.device_name
    if answer.flops_per_sample is None:
        return "–"
    used = utilisation(answer.flops_per_sample, rate, device, values, convolves=answer.convolves)
    peak = peak_flops(device, values, convolves=answer.convolves)
    return UNKNOWN if used is None or peak is None else f"{used:.0%} of {peak[1]}"


def verdicts(answer: Answer) -> str:
    """Ours against the others, round by round, in a sentence; empty as long as it was not trained."""
    mine = answer.trained.get(OURS)
    if mine is None or mine.rate is None:
        return ""
    rivals = {name: each for name, each in answer.trained.items() if name != OURS and each.rate is not None}
    parts = [f"{share_of(ratios(mine, each))} of {name}" for name, each in rivals.items()]
    promised = answer.picks[OURS].promised
    kept = f"; its probes had promised {promised / mine.rate:.1%} of what it runs at" if promised else ""
    return f"{answer.task}: the recommendation runs at {', '.join(parts)}{kept}." if parts else ""


def sources(device_name: str) -> str:
    """Where the peaks are from."""
    peaks = peaks_of(device_name)
    if peaks is None:
        return f"{device_name}: {UNKNOWN}."
    tf32 = "no" if peaks.tf32 is None else f"{peaks.tf32:g}"
    return (
        f"Peaks of {device_name}, dense: {peaks.half:g} TFLOP/s in half precision, {tf32} in TF32, {peaks.float32:g} "
        f"in float32 ({peaks.source})."
    )
