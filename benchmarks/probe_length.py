"""How long a search probe must measure: recorded windows, ended again by the rule of today and by those it replaced.

    python benchmarks/probe_length.py [STUDY ...]

Nothing is run: every recorded step goes through the code that ends a probe's window. The incumbent is invented, so many
times as fast as the window's own mean; or ("the same again") another probe of the same configuration, drift and all:
whoever is cut short there is cut wrongly. What that costs stands in the last columns: how far the rate that is told
then lies from the one that the whole record tells. After it, what shorter parts before the window would do to their
rates. Last, probes of one configuration that came one after the other, without loader workers: how far their rates lie
apart as they were recorded, and with the shorter warm-up and window of `LEAST`.
"""

import argparse
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.child.window_stopping import WindowStopping
from autotune.context.probe_budgets import LEAST, SEARCH
from autotune.core.records import SEARCH_PURPOSES
from autotune.core.requests import ProbeBudget
from autotune.core.results import IsolatedTiming, Measurement, Trial
from autotune.study.disk import read_trials

ROOT = Path(__file__).parent.parent
STUDIES = ("studies/digits_cnn-xeon", "studies/slow_loader-xeon")
SPEEDS = (0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.2)  # of the probe, the incumbent being 1
COMPUTING_SECONDS = (0.2, 0.3, 0.4)  # instead of half a second
LOADER_TURNS = (1, 2)  # instead of three
FEWEST_REPEATS = 4
COLLECTING = 10  # times the median step: a step of a warm-up that is longer collected garbage
Asked = Iterable[tuple[Trial, float | None]]  # a recorded probe, and the incumbent's samples/s


@dataclass(frozen=True)
class Rule:
    """One way to end a window. `compares`: it knows the incumbent."""

    name: str
    budget: ProbeBudget
    compares: bool


RULES = (
    Rule("1.5 s, 3 %", ProbeBudget(), compares=False),
    Rule("0.75 s, 5 %", ProbeBudget(min_seconds=0.75, target_precision=0.05), compares=False),
    Rule("1.5 s, 3 %, cut short", ProbeBudget(rough_precision=ProbeBudget().target_precision), compares=True),
    Rule("as searched now", SEARCH, compares=True),
)


@dataclass(frozen=True)
class Replay:
    """How a recorded window would have ended."""

    seconds: float
    error: float  # of the rate, relative to that of the whole record
    cut: bool


def replay(trial: Trial, rule: Rule, incumbent: float | None) -> Replay:
    """End the recorded window by `rule`; at the latest where the record ends."""
    measured = recorded(trial)
    workers, micro_batches = int(trial.config.values.get("num_workers") or 0), trial.config.gradient_accumulation_steps
    ending = WindowStopping(rule.budget, workers=workers, incumbent=incumbent if rule.compares else None)
    count = 0
    for seconds, samples in zip(measured.step_seconds, measured.samples, strict=True):
        count += 1
        if ending.step(seconds, samples, micro_batches):
            break
    took = sum(measured.step_seconds[:count])
    error = sum(measured.samples[:count]) / took / measured.samples_per_second - 1
    return Replay(seconds=took, error=error, cut=ending.cut_short)


def recorded(trial: Trial) -> Measurement:
    """What the probe measured."""
    assert trial.result.measurement is not None, "only probes that ran were taken"
    return trial.result.measurement


def same_again(trials: Sequence[Trial]) -> Iterator[tuple[Trial, float]]:
    """Pairs of probes of one configuration."""
    for one, other in itertools.permutations(trials, 2):
        if one.config == other.config:
            yield one, recorded(other).samples_per_second


def as_searched(trials: Sequence[Trial]) -> Iterator[tuple[Trial, float]]:
    """Every search probe with the best rate that the study had before it."""
    best = 0.0
    for trial in trials:
        if trial.purpose == "search":
            yield trial, best
        if trial.purpose in SEARCH_PURPOSES:
            best = max(best, recorded(trial).samples_per_second)


def compare(name: str, asked: Asked) -> None:
    """Print one row per rule."""
    pairs = list(asked)
    before = 0.0
    for rule in RULES:
        found = [replay(trial, rule, incumbent) for trial, incumbent in pairs]
        seconds = statistics.mean(one.seconds for one in found)
        before = before or seconds
        cut = sum(one.cut for one in found) / len(found)
        print(
            f"| {name} | {rule.name} | {seconds:.2f} | {1 - seconds / before:.0%} | {cut:.0%} "
            f"| {errors([one.error for one in found])} |"
        )


def errors(found: Sequence[float]) -> str:
    """Median and ninth tenth of what rates are off by."""
    sizes = sorted(map(abs, found))
    return f"{statistics.median(sizes):.1%} | {sizes[int(0.9 * (len(sizes) - 1))]:.1%}"


def shorter(name: str, pairs: Sequence[tuple[IsolatedTiming, int]]) -> None:
    """Print what the rate of a part is off by if only so many of its entries are taken."""
    if not pairs:
        return
    found = [
        IsolatedTiming(seconds=whole.seconds[:count], samples=whole.samples).samples_per_second
        / whole.samples_per_second
        - 1
        for whole, count in pairs
    ]
    print(f"| {name} | {statistics.mean(found):+.1%} | {errors(found)} |")


def until(seconds: Sequence[float], most: float) -> int:
    """How many entries there are until their sum reaches `most`."""
    sums = list(itertools.accumulate(seconds))
    return next((count for count, total in enumerate(sums, 1) if total >= most), len(sums))


def recorded_rate(measured: Measurement) -> float:
    return measured.samples_per_second


def rate_if_least(measured: Measurement) -> float:
    """Return the samples/s of the steps from the end of `LEAST`'s warm-up on, as long as its window is."""
    each = measured.samples[0] / measured.steps_per_block
    first = until(measured.warmup_seconds, LEAST.min_warmup_seconds)
    early = [(seconds, each) for seconds in measured.warmup_seconds[first:]]
    steps = [*early, *zip(measured.step_seconds, measured.samples, strict=True)]
    taken = steps[: until([seconds for seconds, _ in steps], LEAST.min_seconds)]
    return sum(samples for _, samples in taken) / sum(seconds for seconds, _ in taken)


def scatter(groups: Iterable[Sequence[Measurement]], rate: Callable[[Measurement], float]) -> float:
    """Return the standard deviation of a rate, from the ratios of successive probes of one configuration."""
    rates = [[rate(one) for one in group] for group in groups]
    ratios = [math.log(after / before) for one in rates for before, after in itertools.pairwise(one)]
    return math.sqrt(statistics.fmean(ratio**2 for ratio in ratios) / 2)


def repeated(trials: Sequence[Trial]) -> list[list[Measurement]]:
    """The probes of each configuration without loader workers that was probed four times or more, in their order.

    Left out are those whose warm-up was no longer than that of `LEAST`, or had a full collection of garbage after it:
    in a window it is told apart.
    """
    found: dict[str, list[Measurement]] = {}
    for trial in trials:
        measured = recorded(trial)
        later = measured.warmup_seconds[until(measured.warmup_seconds, LEAST.min_warmup_seconds) :]
        is_longer = sum(later) >= LEAST.min_seconds / 4 and max(later) < COLLECTING * statistics.median(later)
        if is_longer and not trial.config.values.get("num_workers"):
            found.setdefault(str(trial.config), []).append(measured)
    return [group for group in found.values() if len(group) >= FEWEST_REPEATS]


def compare_rounds(names: Sequence[str], studies: Sequence[Sequence[Trial]]) -> None:
    """Print one row per study that repeated a configuration."""
    print("\n| rounds of | probes | scatter as recorded | measured least | rates measured least are off by, mean |")
    print("| --- | --- | --- | --- | --- |")
    for name, trials in zip(names, studies, strict=True):
        groups = repeated(trials)
        if groups:
            probes = list(itertools.chain(*groups))
            off = statistics.fmean(rate_if_least(one) / one.samples_per_second - 1 for one in probes)
            as_recorded, least = scatter(groups, recorded_rate), scatter(groups, rate_if_least)
            print(f"| {name} | {len(probes)} | {as_recorded:.1%} | {least:.1%} | {off:+.1%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", type=Path, default=[ROOT / study for study in STUDIES])
    options = parser.parse_args()
    groups = [[trial for trial in read_trials(study) if trial.result.measurement] for study in options.studies]
    trials = list(itertools.chain(*groups))
    print(f"{len(trials)} recorded windows of {len(groups)} studies\n")
    print("| the probe, the incumbent being 1 | rule | seconds | saved | cut short | off by, median | nine tenths |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for speed in SPEEDS:
        compare(f"{speed:g}", ((trial, recorded(trial).samples_per_second / speed) for trial in trials))
    compare("the same again", itertools.chain(*map(same_again, groups)))
    compare("as they were searched", itertools.chain(*map(as_searched, groups)))
    searched = [trial for trial in trials if trial.purpose == "search"]
    elapsed, windows = (
        sum(trial.result.elapsed_seconds for trial in searched),
        sum(sum(recorded(trial).step_seconds) for trial in searched),
    )
    print(f"\nTheir windows were {windows / elapsed:.0%} of the {elapsed:.0f} s that these search probes took.")
    print("\n| before the window | bias | off by, median | nine tenths |\n| --- | --- | --- | --- |")
    computing = [alone for trial in trials if (alone := recorded(trial).compute_only)]
    loading = [alone for trial in trials if (alone := recorded(trial).loader_only) and len(alone.seconds) == 3]
    for most in COMPUTING_SECONDS:
        shorter(f"computing alone for {most:g} s", [(alone, until(alone.seconds, most)) for alone in computing])
    for turns in LOADER_TURNS:
        shorter(f"loading alone for {turns} of 3 turns", [(alone, turns) for alone in loading])
    compare_rounds([study.name for study in options.studies], groups)


if __name__ == "__main__":
    main()
