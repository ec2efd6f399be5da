"""Refinement of the best configuration after the exploration: other batches, less memory.

Local refinement, where the global batch is free. The space doubles the micro-batch: next to a memory limit up to half
of the memory stays unused by it, and a peak of the throughput is met to a factor of two. On 300 simulated machines
three steps more per octave gained over 5 % on 28 % of them, 7.6 % on average, and all multiples of 8 one point more
(decision 0023).

Refinement of the global batch, where it is free: the fastest with the baseline's, by the model; then the knee, which is
the smallest that is still fast enough, with all else as in the fastest.

Memory refinement, where memory counts: which configuration might need less and still be fast enough.

    fastest  ●───────────────────────────────────────────┐  all else alike
    batch    8    16    32    64   128   256   512  1024 │
    rate     ·     ·     ·     ?     ·     ·     ·     ● │  1: the middle of what is below
    rate     ·     ?     ·     ●     ·     ·     ·     ● │  2: fast enough: the middle of what is below that
    rate     ·     ○     ?     ●     ·     ·     ·     ● ┘  3: too slow: the middle of what is between
    rate     ·     ○     ○     ◐     ?     ·     ·     ● ┘  4: fast enough within the noise of a probe: the next above

Time per sample falls with the batch and memory grows, so that the smallest batch that is fast enough is found by
halving, be it the knee or the least memory; the same goes for every knob that says that it makes memory grow.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from autotune.core.records import SEARCH_PURPOSES, Config, StudyRequest
from autotune.core.results import Trial
from autotune.core.stats import MOST_PROBE_NOISE
from autotune.knobs import KNOBS
from autotune.knobs import knob as named
from autotune.knobs.base import Knob, MemoryEffect
from autotune.knobs.changes import BATCH_KNOBS
from autotune.objectives.base import DESCENT
from autotune.sampler.prediction import Prediction
from autotune.study.interference import Judged
from autotune.tuning.choice import luck
from autotune.tuning.context import SearchContext
from autotune.tuning.exploration import FEWEST_PROBES, affords_probe
from autotune.tuning.probing import probe_with_repeat

MULTIPLE = 8  # samples: tensor cores want dimensions that are multiples of it (docs/notes/throughput.md 2)
STEPS = 4  # per octave
MOST_PROBES = 2
MOST_UNCHANGED = 2  # probes with the baseline's global batch, after those of the exploration
LEAST_EXPECTED_GAIN = 0.02  # expected, as a share of the best: less does not pay for a probe (docs/notes/search.md 2)
LIKELY = 0.5  # chance to fit


def refine_batch(context: SearchContext) -> None:
    """Probe those batches between the batches of the space that promise a gain, within the budgets of the search.

    A gain that would not pay for a larger global batch is none.
    """
    history = context.history
    least = max(LEAST_EXPECTED_GAIN, context.objective.knee(context.request.goal) or 0.0)
    for _ in range(MOST_PROBES):
        if not affords_probe(context) or len(history.search_results) < FEWEST_PROBES:  # the prior would promise
            return
        candidates = [one for one in between(history.valid, context.request) if context.trades.admits(one)]
        config = promising(context.sampler.expected(context.store.study, candidates), least)
        if config is None or not affords_probe(context, config):
            return
        probe_with_repeat(context, config, "search")


def refine_global_batch(context: SearchContext) -> None:
    """Probe smaller global batches than that of the best, where it is free, within the budgets of the search."""
    share = context.objective.knee(context.request.goal)
    if share is None:
        return
    for number in range(MOST_UNCHANGED + DESCENT):
        config = unchanged(context) if number < MOST_UNCHANGED else None
        config = config or smaller(context.history.valid, context.trades.remaining(), context.request, slack=share)
        if config is None or not affords_probe(context, config):
            return
        context.store.add(*probe_with_repeat(context, config, "search"))


def refine_memory(context: SearchContext) -> None:
    """Probe smaller configurations of the best one where memory counts, within the budgets of the search."""
    host = context.request.environment.device_kind == "cpu"
    slack = context.objective.slack(context.request.goal)
    if slack is None:
        return
    for _ in range(DESCENT):
        if not affords_probe(context):
            return
        config = leaner(context.history.valid, context.trades.remaining(), slack=slack, host=host)
        if config is None or not affords_probe(context, config):
            return
        context.store.add(*probe_with_repeat(context, config, "search"))


def between(judged: Sequence[Judged], request: StudyRequest) -> list[Config]:
    """Return candidates around the best that were not probed; none where the global batch or batches are held."""
    found = _scored(judged)
    limit = request.limits.get("batch_size")
    if not found or request.goal.global_batch is not None or (limit is not None and limit.values is not None):
        return []
    best = max(found, key=lambda pair: pair[1])[0].config
    tried, most = {trial.config for trial, _ in judged}, request.facts.samples_of_a_rank
    configs = [
        replace(best, values={**best.values, "batch_size": batch})
        for batch in _around(best.batch_size, [int(value or 0) for value in request.domains["batch_size"]])
    ]
    return [c for c in configs if c not in tried and (most is None or c.global_batch_size() <= most)]


def promising(expected: Sequence[tuple[Config, Prediction]], least: float = LEAST_EXPECTED_GAIN) -> Config | None:
    """Return the candidate of which the most is expected, if that is at least so large a share of the best."""
    worthwhile = [
        (forecast.gain, config)
        for config, forecast in expected
        if forecast.gain is not None and forecast.gain >= least and forecast.fits >= LIKELY
    ]
    return max(worthwhile, key=lambda pair: pair[0])[1] if worthwhile else None


def _around(batch: int, ladder: Sequence[int]) -> list[int]:
    """Return multiples of 8, a quarter of an octave apart, between `batch` and its neighbours on the ladder."""
    below, above = [b for b in ladder if b < batch], [b for b in ladder if b > batch]
    low, high = max(below, default=batch), min(above, default=batch)
    octaves = range((high // max(low, 1)).bit_length())
    steps = [(low << octave) * (STEPS + part) // STEPS for octave in octaves for part in range(STEPS)]
    return [step for step in steps if step % MULTIPLE == 0 and low < step < high and step != batch]


def unchanged(context: SearchContext) -> Config | None:
    """Return the configuration with the baseline's global batch that should be probed next; None if none promises.

    First all but the batch of the best one; then what the sampler's model expects to be faster than those probed.
    """
    base, found = context.request.baseline, _scored(context.history.valid)
    open_configs = filter(context.time_guard.may_compile, context.trades.remaining())
    candidates = [one for one in open_configs if one.global_batch_size() == base.global_batch_size()]
    if not found or not candidates:
        return None
    best = max(found, key=lambda pair: pair[1])[0].config
    batch = {name: base[name] for name in BATCH_KNOBS}
    alike = next((one for one in candidates if one.values == best.values | batch), None)
    if alike is not None:
        return alike
    rates = [trial.result.measurement.samples_per_second for trial, _ in found
             if trial.result.measurement and trial.config.global_batch_size() == base.global_batch_size()]  # fmt: skip
    expected = [pair for pair in context.sampler.expected(context.store.study, candidates) if pair[1].fits >= LIKELY]
    config, rate = max(
        ((one, forecast.samples_per_second) for one, forecast in expected),
        key=lambda pair: pair[1],
        default=(None, 0.0),
    )
    return config if rate > (1 + LEAST_EXPECTED_GAIN) * max(rates, default=0.0) else None


def smaller(
    judged: Sequence[Judged], open_configs: Sequence[Config], request: StudyRequest, *, slack: float
) -> Config | None:
    """Return the next probe on the way to the knee among `open_configs`; None if nothing smaller may be fast enough.

    `slack` is the share of the best score that may be given up, and what a single probe may be off by comes on top: the
    confirmation decides, and then it needs the next larger one, too. The baseline's global batch is small enough.
    """
    found, least = _scored(judged), request.baseline.global_batch_size()
    if not found:
        return None
    best, most = max(found, key=lambda pair: pair[1])
    fast = [
        (trial.config, value)
        for trial, value in found
        if value >= most * (1 - slack) * (1 - max(MOST_PROBE_NOISE, luck([trial], [best])))
    ]
    anchor, value = min(fast, key=lambda pair: (pair[0].global_batch_size(), -pair[1]))
    steps = anchor.gradient_accumulation_steps
    tried = {trial.config for trial, _ in judged if trial.config.gradient_accumulation_steps == steps}
    among = [one for one in open_configs if one.gradient_accumulation_steps == steps]
    batch, among = named("batch_size"), [one for one in among if one.global_batch_size() >= least]
    below = _halfway(anchor, batch, among, tried)
    return below if below or value >= most * (1 - slack) else _above(anchor, batch, among, tried)


def leaner(judged: Sequence[Judged], open_configs: Sequence[Config], *, slack: float, host: bool) -> Config | None:
    """Return the next probe of the descent among `open_configs`; None if nothing leaner may be fast enough.

    `slack` is the share of the best score that may be given up; `host`: it is the host's memory that counts.
    """
    found = _scored(judged)
    if not found:
        return None
    enough = max(value for _, value in found) * (1 - slack)
    anchor = min((trial for trial, value in found if value >= enough), key=_peak).config
    tried = {trial.config for trial, _ in judged}
    effects = (MemoryEffect.GROWS, MemoryEffect.GROWS_HOST) if host else (MemoryEffect.GROWS,)
    for knob in KNOBS:
        config = _halfway(anchor, knob, open_configs, tried) if knob.memory in effects else None
        if config is not None:
            return config
    return None


def _scored(judged: Sequence[Judged]) -> list[tuple[Trial, float]]:
    return [(t, v.value) for t, v in judged if t.purpose in SEARCH_PURPOSES and v.feasible and v.value is not None]


def _halfway(anchor: Config, knob: Knob, open_configs: Sequence[Config], tried: Collection[Config]) -> Config | None:
    """Return the middle of what is open below `anchor` and above all that was tried below it, by `knob` alone."""
    ladder = _below(anchor, knob, (*open_configs, *tried))
    slow = [i for i, config in enumerate(ladder) if config in tried]
    ladder = [config for config in ladder[max(slow, default=-1) + 1 :] if config in open_configs]
    return ladder[len(ladder) // 2] if ladder else None


def _above(anchor: Config, knob: Knob, open_configs: Sequence[Config], tried: Collection[Config]) -> Config | None:
    """Return the next larger one by `knob` alone, if it is open."""
    larger = [
        one for one in (*open_configs, *tried)
        if knob.size(one[knob.name]) > knob.size(anchor[knob.name]) and _others(one, knob) == _others(anchor, knob)
    ]  # fmt: skip
    nearest = min(larger, key=lambda one: knob.size(one[knob.name]), default=None)
    return nearest if nearest in open_configs else None


def _below(anchor: Config, knob: Knob, configs: Sequence[Config]) -> list[Config]:
    """Return the configurations with smaller values of `knob` and all else alike, ascending.

    Of each value the one nearest to the anchor's global batch, for accumulation makes up for a smaller micro-batch.
    """
    nearest: dict[float, Config] = {}
    for config in configs:
        value = knob.size(config[knob.name])
        if value >= knob.size(anchor[knob.name]) or _others(config, knob) != _others(anchor, knob):
            continue
        known = nearest.get(value)
        if known is None or _distance(config, anchor) < _distance(known, anchor):
            nearest[value] = config
    return [nearest[value] for value in sorted(nearest)]


def _others(config: Config, knob: Knob) -> list[object]:
    """Return the values that must stay: of all knobs that move memory, and of those that move the speed of a batch."""
    follows = ("gradient_accumulation_steps", knob.name)
    return [config[other.name] for other in KNOBS if other.name not in follows]


def _distance(config: Config, anchor: Config) -> int:
    return abs(config.global_batch_size() - anchor.global_batch_size())


def _peak(trial: Trial) -> int:
    assert trial.result.measurement is not None, "only what was measured is feasible"
    return trial.result.measurement.memory.bytes
