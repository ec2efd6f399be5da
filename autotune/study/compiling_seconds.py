"""The seconds that a configuration compiles before its steps are steady: as measured, else by its knobs' guess."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from autotune.core.records import Config, Value
from autotune.core.results import Trial
from autotune.knobs import KNOBS
from autotune.knobs.base import Knob

# Share of a first compilation's seconds if the study's cache has the code: measured 0.1 to 0.4
# (benchmarks/compiling.py); a high value is safer.
WARM_SHARE = 0.5


class CompilingSeconds:
    """The seconds of compiling that the trials so far took."""

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._known: dict[Config, list[tuple[float, bool]]] = {}
        self._measured: set[Config] = set()
        self._first_steps: dict[tuple[Value, ...], list[float]] = {}  # beyond later ones, where nothing was compiled
        self._deciding = [
            knob for knob in KNOBS if knob.compiles or type(knob).compiling_seconds is not Knob.compiling_seconds
        ]
        self._of_others: dict[tuple[Value, ...], float] = {}  # by the values of these: seconds of what never ran
        for trial in trials:
            measured = trial.result.measurement
            if measured is None:
                continue
            self._measured.add(trial.config)
            if (found := measured.compilation) is not None:
                self._known.setdefault(trial.config, []).append((found.seconds, found.is_cold))
            elif measured.warmup_seconds:
                longer = measured.warmup_seconds[0] - min(measured.warmup_seconds)
                self._first_steps.setdefault(_values(trial.config, compiling=False), []).append(longer)

    def cold(self, config: Config) -> float:
        """Return the longest measured seconds of compiling `config` for the first time; 0.0: not measured."""
        return max((seconds for seconds, _ in self._known.get(config, ())), default=0.0)

    def next(self, config: Config) -> float:
        """Return the seconds that one more probe of `config` will compile; 0.0 if it was measured without compiling."""
        if config in self._known:
            seconds, is_cold = self._known[config][-1]
            return seconds * (WARM_SHARE if is_cold else 1.0)
        if config in self._measured:
            return 0.0
        values = tuple(config.values.get(knob.name, knob.default) for knob in self._deciding)
        if values not in self._of_others:  # asked of thousands of configurations before every probe
            self._of_others[values] = self._compiles(config) + self._times(config)
        return self._of_others[values]

    def _compiles(self, config: Config) -> float:
        guess, mode = _guessed(config, compiling=True), _values(config, compiling=True)
        known = self._known.items()
        alike = [one[0] for other, seen in known if _values(other, compiling=True) == mode for one in seen if one[1]]
        return statistics.median(alike) if guess and alike else guess

    def _times(self, config: Config) -> float:
        """Return the seconds in which a first step times algorithms."""
        guess, seen = _guessed(config, compiling=False), self._first_steps.get(_values(config, compiling=False))
        return statistics.median(seen) if guess and seen else guess


def _guessed(config: Config, *, compiling: bool) -> float:
    """Return the guess for a first probe, by the knobs that compile, or by the other knobs."""
    knobs = [knob for knob in KNOBS if knob.compiles is compiling]
    return sum(knob.compiling_seconds(config.values.get(knob.name, knob.default)) for knob in knobs)


def _values(config: Config, *, compiling: bool) -> tuple[Value, ...]:
    """Return the values of the knobs that compile, or of the others that make a first step longer."""
    values = [(knob, config.values.get(knob.name, knob.default)) for knob in KNOBS if knob.compiles is compiling]
    return tuple(value for knob, value in values if compiling or knob.compiling_seconds(value) > 0)
