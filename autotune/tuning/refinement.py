"""Refinement of the best configuration after the exploration: other batches, less memory.

Local refinement, if the global batch is free. The space doubles the micro-batch: near a memory limit up to half of the
memory stays unused, and a peak of the throughput is met within a factor of two only. On 300 simulated machines, three
more steps per octave gained over 5 % on 28 % of the machines, 7.6 % on average; all multiples of 8 gained one
percentage point more (decisions/0023).

Refinement of the global batch, if it is free: first the configuration with the baseline's global batch that the model
expects to be fastest; then the knee, the smallest global batch that is still fast enough, with all other knobs as in
the fastest. Memory refinement, if memory counts: the configuration that may need less memory and still be fast enough.
Both go down by halving (`descent.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from autotune.context.search_context import SearchContext
from autotune.core.records import Config, StudyRequest
from autotune.knobs.batch_size import BATCH_MULTIPLE
from autotune.knobs.changes import BATCH_KNOBS
from autotune.objectives.base import DESCENT_PROBES
from autotune.sampler.prediction import Prediction
from autotune.study.valid_probes import Judged
from autotune.tuning.descent import leaner, scored, smaller
from autotune.tuning.exploration import FEWEST_PROBES, affords_probe
from autotune.tuning.probing import probe_and_tell

STEPS_PER_OCTAVE = 4
MOST_PROBES = 2
MOST_UNCHANGED = 2  # probes with the baseline's global batch, after those of the exploration
LEAST_EXPECTED_GAIN = 0.02  # as a share of the best: a smaller gain does not justify a probe (docs/notes/search.md 2)
FIT_CHANCE = 0.5  # least probability that a candidate fits in memory


def refine_batch(context: SearchContext) -> None:
    """Probe those batches between the batches of the space that promise a gain, within the budgets of the search.

    A gain that would not justify a larger global batch does not count.
    """
    history = context.history
    least = max(LEAST_EXPECTED_GAIN, context.objective.knee(context.request.goal) or 0.0)
    for _ in range(MOST_PROBES):
        if not affords_probe(context) or len(history.search_results) < FEWEST_PROBES:  # the prior alone would promise
            return
        candidates = [one for one in values_between(history.valid, context.request) if context.trades.admits(one)]
        config = promising(context.expected(candidates), least)
        if config is None or not affords_probe(context, config):
            return
        probe_and_tell(context, config)


def refine_global_batch(context: SearchContext) -> None:
    """Probe smaller global batches than that of the best, if it is free, within the budgets of the search."""
    share = context.objective.knee(context.request.goal)
    if share is None:
        return
    for number in range(MOST_UNCHANGED + DESCENT_PROBES):
        config = with_baseline_batch(context) if number < MOST_UNCHANGED else None
        config = config or smaller(context.history.valid, context.trades.remaining(), context.request, slack=share)
        if config is None or not affords_probe(context, config):
            return
        probe_and_tell(context, config)


def refine_memory(context: SearchContext) -> None:
    """Probe configurations with less memory than the best, if memory counts, within the budgets of the search."""
    host = context.request.environment.device_kind == "cpu"
    slack = context.objective.slack(context.request.goal)
    if slack is None:
        return
    for _ in range(DESCENT_PROBES):
        if not affords_probe(context):
            return
        config = leaner(context.history.valid, context.trades.remaining(), slack=slack, host=host)
        if config is None or not affords_probe(context, config):
            return
        probe_and_tell(context, config)


def values_between(judged: Sequence[Judged], request: StudyRequest) -> list[Config]:
    """Return candidates around the best that were not probed; none if the global batch or its parts are held."""
    found = scored(judged)
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
    """Return the candidate with the largest expected gain, if that is at least the share `least` of the best."""
    worthwhile = [
        (predicted.gain, config)
        for config, predicted in expected
        if predicted.gain is not None and predicted.gain >= least and predicted.fits >= FIT_CHANCE
    ]
    return max(worthwhile, key=lambda pair: pair[0])[1] if worthwhile else None


def _around(batch: int, ladder: Sequence[int]) -> list[int]:
    """Return multiples of 8, a quarter of an octave apart, between `batch` and its neighbours on the ladder."""
    below, above = [b for b in ladder if b < batch], [b for b in ladder if b > batch]
    low, high = max(below, default=batch), min(above, default=batch)
    octaves = range((high // max(low, 1)).bit_length())
    steps = [
        (low << octave) * (STEPS_PER_OCTAVE + part) // STEPS_PER_OCTAVE
        for octave in octaves
        for part in range(STEPS_PER_OCTAVE)
    ]
    return [step for step in steps if step % BATCH_MULTIPLE == 0 and low < step < high and step != batch]


def with_baseline_batch(context: SearchContext) -> Config | None:
    """Return the configuration with the baseline's global batch that should be probed next; None if none is promising.

    First it is the best one with all but its batch kept; then the one that the sampler's model expects to be faster
    than those probed.
    """
    base, found = context.request.baseline, scored(context.history.valid)
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
    expected = [pair for pair in context.expected(candidates) if pair[1].fits >= FIT_CHANCE]
    config, rate = max(
        ((one, predicted.samples_per_second) for one, predicted in expected),
        key=lambda pair: pair[1],
        default=(None, 0.0),
    )
    return config if rate > (1 + LEAST_EXPECTED_GAIN) * max(rates, default=0.0) else None
