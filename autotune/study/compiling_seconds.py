"""The seconds that a configuration compiles before its steps are steady: by what was seen, else by its knobs' guess."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from autotune.core.records import Config, Value
from autotune.core.results import Trial
from autotune.knobs import KNOBS

# Of a first compilation, where the study's cache has the code: 0.1 to 0.4 (benchmarks/compiling.py), rather too much.
WARM_SHARE = 0.5


class CompilingSeconds:
    """The seconds of compiling that the trials so far took."""

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._known: dict[Config, list[tuple[float, bool]]] = {}
        self._measured: set[Config] = set()
        for trial in trials:
            measured = trial.result.measurement
            if measured is not None:
                self._measured.add(trial.config)
            if measured is not None and (found := measured.compilation) is not None:
                self._known.setdefault(trial.config, []).append((found.seconds, found.is_cold))

    def cold(self, config: Config) -> float:
        """Return the seconds of compiling `config` for the first time, as measured: its longest. 0.0: it was not."""
        return max((seconds for seconds, _ in self._known.get(config, ())), default=0.0)

    def next(self, config: Config) -> float:
        """Return the seconds that one more probe of `config` will compile; 0.0 where all that it took is known."""
        if config in self._known:
            seconds, is_cold = self._known[config][-1]
            return seconds * (WARM_SHARE if is_cold else 1.0)
        if config in self._measured or not (guess := _guessed(config)):
            return 0.0
        mode = _mode(config)
        alike = [one[0] for other, seen in self._known.items() if _mode(other) == mode for one in seen if one[1]]
        return guess - _guessed(config, compiling=True) + statistics.median(alike) if alike else guess


def _guessed(config: Config, *, compiling: bool = False) -> float:
    """Return what the knobs say of a first probe, before any was seen; those alone that compile, where so asked."""
    knobs = [knob for knob in KNOBS if knob.compiles or not compiling]
    return sum(knob.compiling_seconds(config.values.get(knob.name, knob.default)) for knob in knobs)


def _mode(config: Config) -> tuple[Value, ...]:
    return tuple(config.values.get(knob.name, knob.default) for knob in KNOBS if knob.compiles)
