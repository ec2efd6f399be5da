"""Trades of time for memory or for cores: which configurations cannot be the best, decided without a probe.

Memory (activation checkpointing):

If a batch fits without the trade, or with a lighter one, the trade can only be slower: the samples are the same, and
each takes more computing. So in a ladder of trades one of them rules out those that surely take longer: by what they
do, or because a standard deviation of each prior is between them. The others stay, and their measured seconds decide.
If the batch does not fit, a larger batch can gain at most the fixed part of the time: with fixed + sample * b seconds
of computing, and a trade that makes them longer by a share x, it gains only if b_mem < (fixed / sample) / x, with b_mem
the largest batch that fits without the trade (docs/notes/throughput.md 4).

Cores (a wait policy that lets waiting threads sleep): if threads and workers have a core each, nothing runs sooner
because a thread sleeps, and the thread wakes up late (decisions/0054).

Workers, and memory that is kept: if loading takes a small part of a step, workers that load gain nothing; nor does
keeping memory, if page faults take a small part.

Nothing here names a knob: its influence says what it trades.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

import numpy as np
from msgspec.structs import replace

from autotune.context import step_shares
from autotune.core.records import Config, Value
from autotune.core.results import Measurement
from autotune.knobs import KNOBS, knob, loader_workers, traded, worker_knob
from autotune.knobs.base import Knob
from autotune.knobs.changes import BATCH_KNOBS
from autotune.knobs.influence import Factor
from autotune.memory.prediction import MemoryPrediction
from autotune.objectives import objective_of
from autotune.sampler.guard import Guard
from autotune.sampler.space import SearchSpace, held_by_a_rank
from autotune.study.history import History

SIZES_APART = 2.0  # least ratio of largest to smallest batch for which measured times tell a slope from noise


class TradeExclusion(Enum):
    """The reasons why a trade cannot win."""

    FITS = "the same batch fits without, or with less"
    SATURATED = "larger batches gain too little"
    CORES = "threads and workers have a core each"
    UPDATE = step_shares.UPDATE
    LOADING = step_shares.LOADING
    FAULTS = step_shares.FAULTS


@dataclass(frozen=True, kw_only=True)
class Saturation:
    """The speed of computing without a trade, by its probes, and the largest batch that fits without it."""

    half_batch: float  # micro-batch with half of the full speed: fixed / sample seconds
    fitting_batch: int  # the largest micro-batch that fits

    def forbids(self, longer: float) -> bool:
        """Return whether no batch, however large, compensates for computing that takes longer by that share."""
        return self.fitting_batch * longer >= self.half_batch


class Trades:
    """The trades that are ruled out in one study at present; another probe may rule out more, or allow one again.

    Together with the guard it decides which configurations may still be probed.
    """

    def __init__(self, space: SearchSpace, history: History, guard: Guard, memory: MemoryPrediction) -> None:
        self._request, self._space, self._history = history.request, space, history
        self._guard, self._memory = guard, memory
        self._without: dict[Config, Config | None] = {}
        values = [(one, value) for one in KNOBS for value in space.configs.values(one.name)] if space.configs else []
        decides = objective_of(self._request.goal).is_speed
        self._lighter_values = cache(self._found_lighter)  # asked for every configuration, before every probe
        # Whether the space has a trade, and the objective is speed alone.
        self.decides = decides and any(self._lighter_values(one, value) for one, value in values)
        self._yielding = {
            (one.name, value) for one, value in values
            if decides and one.name not in self._request.goal.limits and one.influence(value).trades_time_for_cores
        }  # fmt: skip
        self._known: dict[Config, TradeExclusion | None] = {}
        self._fitting: dict[Config, bool] = {}
        self._saturations: dict[tuple[Value, ...], Saturation | None] = {}
        self._refuted: list[tuple[tuple[Value, ...], int]] = []  # wrong predictions: the batch did not fit
        self._version = -1
        self._remaining: tuple[Config, ...] = ()
        self._remaining_of = (-1, -1)  # versions of history and guard

    def admits(self, config: Config) -> bool:
        """Return whether a probe of `config` could teach anything, and `config` could be the best configuration."""
        return self._guard.admits(config) and self.why(config) is None

    def remaining(self) -> tuple[Config, ...]:
        """Return all configurations that are still admitted; of a very large space those of `SearchSpace.around`."""
        now = (self._history.version, self._guard.version)
        if now != self._remaining_of:  # asked several times between two probes
            self._remaining = tuple(config for config in self._guard.remaining() if self.why(config) is None)
            self._remaining_of = now
        return self._remaining

    def why(self, config: Config) -> TradeExclusion | None:
        """Return why `config` can only be slower than what fits without its trade; None if it may be the best."""
        if self._version != self._history.version:
            self._version, self._known, self._fitting, self._saturations = self._history.version, {}, {}, {}
            overflows = (trial.config for trial, _ in self._history.judged if trial.result.outcome.out_of_memory)
            self._refuted = [(_pace(one), one.batch_size) for one in overflows if self._memory.expects_to_fit(one)]
        if config not in self._known:
            self._known[config] = self._decided(config)
        return self._known[config]

    def exclusions(self, known: set[TradeExclusion]) -> list[str]:
        """Return one line for each reason that rules something out and is not in `known`; add the reason to `known`."""
        lines = []
        reasons = [(config, self.why(config)) for config in self._space.around()]
        for why in TradeExclusion:
            out = [config for config, reason in reasons if reason is why]
            if out and why not in known:
                known.add(why)
                lines.append(self._line(why, out))
        return lines

    def _line(self, why: TradeExclusion, out: Sequence[Config]) -> str:
        every, looked_at = len(self._space.configs), self._space.around()
        about, count = "" if self._space.is_listed else "about ", round(len(out) / len(looked_at) * every)
        skipping = f"Skipping {about}{count:,} of {every:,} configurations"
        if why is TradeExclusion.CORES:
            return f"{skipping}: threads that sleep while they wait are slower where each has a core of its own."
        if why.value in step_shares.LEAST_SHARES:
            return f"{skipping}: {step_shares.short_phrase(self._history, why.value)}."
        trades = [config for config in looked_at if any(self._lighter(config))]
        most = max(out, key=_longer)
        name = " and ".join(knob(one).phrase(most[one]) for one in traded(most.values))
        if why is TradeExclusion.FITS and len(out) == len(trades):
            return f"{skipping}: every batch fits without {name}, which can only be slower."
        if why is TradeExclusion.FITS:
            less = " or with less of it" if len({_trade(config) for config in trades}) > 1 else ""
            return f"{skipping}: the same batch is predicted to fit without {name}{less}, which can only be slower."
        found = self._saturation(out[0])
        assert found is not None, "it was the reason"
        return (
            f"{skipping}: {name} would allow larger batches, which gain too little: computing reaches half of its full "
            f"speed at batch {found.half_batch:.0f}, and {found.fitting_batch} fits without it."
        )

    def _decided(self, config: Config) -> TradeExclusion | None:
        if self.decides and any(map(self._fits, self._lighter(config))):
            return TradeExclusion.FITS
        found = self._saturation(config) if self.decides and self._plain(config) is not None else None
        if found is not None and found.forbids(_longer(config)):
            return TradeExclusion.SATURATED
        yields = not self._yielding.isdisjoint(config.values.items())
        if yields and self._has_core_each(config):
            return TradeExclusion.CORES
        short = step_shares.short_part(self._history, config)
        return TradeExclusion(short) if short else None

    def _has_core_each(self, config: Config) -> bool:
        """Return whether each thread and worker of all ranks has a core of its own."""
        environment = self._request.environment
        own = environment.default_threads or environment.usable_cores
        counts = [knob.computing_threads(config[knob.name], own) for knob in KNOBS]
        threads = next((count for count in counts if count is not None), own)
        return self._request.facts.ranks * (threads + loader_workers(config)) <= environment.usable_cores

    def _plain(self, config: Config) -> Config | None:
        """Return the configuration without trades; None if it has none, or if the space does not allow it."""
        if config not in self._without:
            without = self._spared(config.values)
            self._without[config] = replace(config, values=config.values | without) if without else None
        return self._without[config]

    def _spared(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return the values that replace trades in these; none without a trade, or if the space does not allow it."""
        without = traded(values)
        possible = all(value in self._space.domains[name] for name, value in without.items())
        return without if possible else {}

    def _lighter(self, config: Config) -> Iterator[Config]:
        """Yield the configurations that trade less time for memory, and are otherwise equal."""
        for one in KNOBS:
            for value in self._lighter_values(one, config[one.name]):
                yield replace(config, values={**config.values, one.name: value})

    def _found_lighter(self, one: Knob, value: Value) -> list[Value]:
        own = one.influence(value)
        if not own.trades_time_for_memory:
            return []
        least, domain = _within(own.sample_time, -1), self._space.domains[one.name]
        longest = {other: _within(one.influence(other).sample_time, 1) for other in domain}
        return [other for other in domain if longest[other] < least or one.takes_no_longer(other, value)]

    def _fits(self, config: Config) -> bool:
        if config not in self._fitting:
            known = self._guard.fits(config)
            if known is None and self._memory.expects_to_fit(config):
                known = all(batch > config.batch_size or pace != _pace(config) for pace, batch in self._refuted)
            self._fitting[config] = bool(known)
        return self._fitting[config]

    def _saturation(self, config: Config) -> Saturation | None:
        pace = _pace(config)
        if pace not in self._saturations:
            self._saturations[pace] = self._measured(config, pace)
        return self._saturations[pace]

    def _measured(self, config: Config, pace: tuple[Value, ...]) -> Saturation | None:
        """Return the saturation by all probes without the trade; None while they are too few."""
        fitting = max((c.batch_size for c in self._of_other_batches(config) if self._fits(c)), default=0)
        times = [
            (trial.config.batch_size, _micro_batch_seconds(trial.config, trial.result.measurement))
            for trial, _ in self._history.judged
            if trial.result.measurement is not None and not traded(trial.config.values) and _pace(trial.config) == pace
        ]
        half = _half_batch(times, held_by_a_rank(self._request.goal, self._request.facts))
        return None if half is None or not fitting else Saturation(half_batch=half, fitting_batch=fitting)

    def _of_other_batches(self, config: Config) -> list[Config]:
        """Return `config` without trades, with each micro-batch of the space, and the fewest workers."""
        name = worker_knob().name
        workers = {name: min(self._space.configs.values(name), key=lambda count: int(count or 0))}
        plain = config.values | traded(config.values) | workers
        batches = self._space.configs.values("batch_size")
        found = [self._space.complete(plain | {"batch_size": batch}) for batch in batches]
        return [one for one in found if one in self._space.configs]


def _half_batch(times: Sequence[tuple[int, float]], held: int | None) -> float | None:
    """Return the micro-batch whose growing seconds equal the fixed ones; None if unknown.

    `times` has micro-batches, in samples, with their seconds. If the global batch is `held`, each sample pays its share
    of the optimizer step, which looks like a part that grows. It counts as at most as long as the fixed part, four
    times the prior (`sampler/parameters.py`): too large a result rules out too little.
    """
    batches, seconds = np.array([b for b, _ in times], float), np.array([s for _, s in times])
    if not len(times) or batches.max() < SIZES_APART * batches.min():
        return None
    fixed, sample = np.polynomial.polynomial.polyfit(batches, seconds, 1, w=1 / seconds)
    sample -= max(fixed, 0.0) / held if held else 0.0
    return math.inf if sample <= 0 else max(0.0, float(fixed / sample))


def _micro_batch_seconds(config: Config, measured: Measurement) -> float:
    rate = measured.compute_samples_per_second or measured.samples_per_second
    return config.batch_size / rate


def _longer(config: Config) -> float:
    """Return the least share by which trades make computing longer: one standard deviation below the mean."""
    factors = [knob(name).influence(config[name]).sample_time for name in traded(config.values)]
    return math.prod(_within(factor, -1) for factor in factors) - 1


def _within(factor: Factor, deviations: float) -> float:
    """Return the factor so many standard deviations above its center."""
    return factor.center * math.exp(deviations * factor.spread)


def _trade(config: Config) -> tuple[Value, ...]:
    return tuple(config[name] for name in traded(config.values))


def _pace(config: Config) -> tuple[Value, ...]:
    """Return the values that decide how fast samples are computed: all but trades, micro-batches and workers."""
    without = traded(config.values)
    own = [one.name for one in KNOBS if one.name not in BATCH_KNOBS and not one.counts_workers]
    return tuple(without.get(name, config[name]) for name in own)
