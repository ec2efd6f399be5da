"""Values that fail in the user's code: what all configurations that fail at one line have in common, and none that ran.

    ran      fp32  16×1   0 workers
    failed   bf16  8×2    0 workers     index_add_(): self (Float) and source (BFloat16), at model.py:19
    failed   bf16  16×1   2 workers     the same line: bf16 is refused

So a value that the code cannot take costs some probes and not the time budget.
"""

from __future__ import annotations

from collections import defaultdict

from autotune.core.records import Config, Value
from autotune.core.results import Failure
from autotune.failures.words import ended_early

FEWEST_FAILURES = 2  # at one line: one may be an accident


class FailingValues:
    """What the probes of a study say of the values with which the user's code raises an error.

    One value is assumed to be the cause, so one that ran is none. Where failed configurations have different values of
    a knob, and none of these ran, all its values that never ran are suspected: a batch size that is written in a model.
    """

    def __init__(self) -> None:
        self._failed: defaultdict[str, list[Config]] = defaultdict(list)  # by line
        self._ran: defaultdict[str, set[Value]] = defaultdict(set)  # by knob
        self._suspected: list[dict[str, frozenset[Value]]] = []

    def note_run(self, config: Config) -> None:
        """Note that `config` trained."""
        for name, value in config.values.items():
            self._ran[name].add(value)
        self._update()

    def note_error(self, config: Config, failure: Failure) -> None:
        """Note that the user's code raised an error with `config`."""
        if not ended_early(failure):
            self._failed[failure.user_frame or failure.message].append(config)
            self._update()

    def refuses(self, config: Config) -> bool:
        """Return whether `config` has all values that are suspected of one error."""
        return any(all(self._has(config, name, values) for name, values in one.items()) for one in self._suspected)

    @property
    def refused_values(self) -> dict[str, Value]:
        """The values that are refused alone, by knob."""
        alone = (next(iter(one.items())) for one in self._suspected if len(one) == 1)
        return {name: next(iter(values)) for name, values in alone if values}

    def _update(self) -> None:
        enough = [configs for configs in self._failed.values() if len(configs) >= FEWEST_FAILURES]
        self._suspected = [one for one in map(self._common, enough if self._ran else []) if one]

    def _common(self, failed: list[Config]) -> dict[str, frozenset[Value]]:
        """Return what the failed configurations have that never ran, by knob; an empty set: any that never ran."""
        found = {}
        for name in failed[0].values:
            values = frozenset(one[name] for one in failed)
            if not values & self._ran[name]:
                found[name] = values if len(values) == 1 else frozenset()
        return found

    def _has(self, config: Config, name: str, values: frozenset[Value]) -> bool:
        return config[name] in values if values else config[name] not in self._ran[name]
