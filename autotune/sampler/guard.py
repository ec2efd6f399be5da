"""The guard refuses what was probed, what needs as much memory as what ran out of it, what is unstable, what fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from autotune.core.records import Config, Value
from autotune.core.results import Outcome, Trial
from autotune.knobs import KNOBS
from autotune.knobs.base import Knob, MemoryEffect
from autotune.sampler.failing import FailingValues
from autotune.sampler.space import SearchSpace
from autotune.sampler.stability import NumericalStability

# A configuration that crashed twice, or twice took the searching process down with it, is never probed again: a machine
# that hangs at one batch size must not be led there by every resume.
MOST_ACCIDENTS = 2
ON_DEVICE = (Outcome.OOM_DEVICE, Outcome.TOO_LARGE)


class Admission(Protocol):
    """The decision which configurations may still be probed."""

    def admits(self, config: Config) -> bool:
        """Return whether a probe of `config` could teach anything."""
        ...

    def remaining(self) -> tuple[Config, ...]:
        """Return every configuration that is still admitted; of a very large space, those of `SearchSpace.around`."""
        ...


class Guard:
    """The guard, which learns from trials and is independent of the sampler that it protects.

    Without it a sampler that knows nothing of memory spent 13 to 18 of 60 probes on running out of it; with it 3 to 4
    (docs/notes/search.md 1). `version` grows with everything that it learns.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._space, self.version = space, 0
        self._felt = [knob for knob in KNOBS if knob.memory is not MemoryEffect.NONE]
        self._done: set[Config] = set()
        self.stability, self.failing = NumericalStability(), FailingValues()
        self._pending: set[Config] = set()  # that are probed now
        self._accidents: Counter[Config] = Counter()
        self._exhausted: list[tuple[Config, bool]] = []  # configuration, and whether the host's memory ran out
        self._fitted: list[tuple[Config, bool]] = []  # the same
        # A cache, because a search asks about each configuration thousands of times: with how many exhausted
        # configurations this one was compared,
        self._compared: dict[Config, tuple[int, bool]] = {}  # and whether it needs at least the memory of one of these

    def learn(self, trial: Trial, over_limit: bool = False, is_stable: bool | None = None) -> None:
        """Take note of a finished probe; `over_limit`: it ran, but needed more memory than is allowed.

        `is_stable`: whether its losses and gradients were finite; None: it did not get so far.
        """
        self.version += 1
        outcome = trial.result.outcome
        if outcome.retried:
            self.note_accident(trial.config)
            return
        self._done.add(trial.config)
        if is_stable is not None:
            self.stability.note(trial.config, is_stable=is_stable)
        if trial.result.measurement is not None or outcome is Outcome.UNSTABLE:
            self.failing.note_run(trial.config)
        elif outcome is Outcome.USER_ERROR and trial.result.failure is not None:
            self.failing.note_error(trial.config, trial.result.failure)
        if outcome.out_of_memory:
            self._exhausted.append((trial.config, outcome not in ON_DEVICE))
        elif trial.result.measurement is not None:
            on_host = trial.result.measurement.memory.reserved_bytes is None
            (self._exhausted if over_limit else self._fitted).append((trial.config, on_host))

    def note_accident(self, config: Config) -> None:
        """Note that the probe of `config` crashed, or that the searching process died during it."""
        self.version += 1
        self._accidents[config] += 1
        if self.is_dangerous(config):
            self._done.add(config)

    def is_dangerous(self, config: Config) -> bool:
        """Return whether `config` crashed, or took the searching process down, too often to be tried again."""
        return self._accidents[config] >= MOST_ACCIDENTS

    def admits(self, config: Config) -> bool:
        """Return whether a probe of `config` could teach anything."""
        known = config in self._done or config in self._pending
        refused = known or self._is_too_large(config) or self.stability.refuses(config)
        return not (refused or self.failing.refuses(config))

    @contextmanager
    def pending(self, config: Config) -> Iterator[None]:
        """Refuse a configuration while it is probed, so that no other worker gets it, too."""
        self._pending.add(config)
        self.version += 1
        try:
            yield
        finally:
            self._pending.discard(config)
            self.version += 1

    def fits(self, config: Config) -> bool | None:
        """Return whether `config` fits into memory, by probes of smaller and larger ones; None if unknown."""
        if self._is_too_large(config):
            return False
        return True if any(self._no_smaller(fitted, config, host) for fitted, host in self._fitted) else None

    def _is_too_large(self, config: Config) -> bool:
        count, found = self._compared.get(config, (0, False))
        if not found and count < len(self._exhausted):
            found = any(self._no_smaller(config, exhausted, host) for exhausted, host in self._exhausted[count:])
            self._compared[config] = len(self._exhausted), found
        return found

    def remaining(self) -> tuple[Config, ...]:
        """Return every configuration that is still admitted; of a very large space, those of `SearchSpace.around`."""
        return tuple(config for config in self._space.around(self._done) if self.admits(config))

    def _no_smaller(self, config: Config, exhausted: Config, host: bool) -> bool:
        """Whether `config` needs at least the memory of `exhausted`, as far as the knobs can tell."""
        return all(_follows(knob, config[knob.name], exhausted[knob.name], host) for knob in self._felt)


def _follows(knob: Knob, value: Value, exhausted: Value, host: bool) -> bool:
    if knob.memory is MemoryEffect.GROWS_HOST and not host:
        return True
    if knob.memory is MemoryEffect.SHRINKS:
        return knob.needs_no_less(value, exhausted)
    if knob.memory in (MemoryEffect.CHANGES, MemoryEffect.UNSEEN):
        return value == exhausted
    return knob.size(value) >= knob.size(exhausted)
