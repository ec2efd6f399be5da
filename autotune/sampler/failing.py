"""Values that fail in the user's code: what all configurations with one error have in common, and none that ran.

    ran      fp32  16×1   0 workers     the baseline
    failed   bf16  8×2    0 workers     index_add_(): self (Float) and source (BFloat16), at model.py:19
    failed   bf16  16×1   2 workers     the same: bf16 is refused

So a value that the code cannot take costs some probes and not the time budget.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from autotune.core.records import Config, Value
from autotune.core.results import Failure
from autotune.failures.words import ended_early

FEWEST_FAILURES = 2  # with one error: a single one may be an accident


class FailingValues:
    """What the probes of a study say of the values with which the user's code raises an error.

    Suspected are the values that all configurations with that error share and the first one that ran, the baseline,
    does not have; together, until more failures tell them apart: a cause may be two of them. Nothing is concluded from
    values that differ between the failures, such as large batches, nor from what also ran.
    """

    def __init__(self) -> None:
        self._failed: defaultdict[str, list[Config]] = defaultdict(list)  # by error
        self._ran: list[Config] = []
        self._suspected: list[Mapping[str, Value]] = []

    def note_run(self, config: Config) -> None:
        """Note that `config` trained."""
        self._ran.append(config)
        self._update()

    def note_error(self, config: Config, failure: Failure) -> None:
        """Note that the user's code raised an error with `config`."""
        if not ended_early(failure):
            self._failed[_error(failure)].append(config)
            self._update()

    def refuses(self, config: Config) -> bool:
        """Return whether `config` has all values that are suspected of one error."""
        return any(_has(config, one) for one in self._suspected)

    @property
    def refused_alone(self) -> set[tuple[str, Value]]:
        """The values that are refused whatever stands beside them, each with the name of its knob."""
        return {next(iter(one.items())) for one in self._suspected if len(one) == 1}

    def cause(self, failure: Failure) -> Mapping[str, Value]:
        """Return the value that is suspected alone of an error, by knob; empty: none is known."""
        found = self._common(self._failed.get(_error(failure), []))
        return found if len(found) == 1 else {}

    def _update(self) -> None:
        self._suspected = [one for one in map(self._common, self._failed.values()) if one]

    def _common(self, failed: list[Config]) -> Mapping[str, Value]:
        """Return the values that are suspected of an error with which these configurations failed."""
        if len(failed) < FEWEST_FAILURES or not self._ran:
            return {}
        first, usual = failed[0].values, self._ran[0].values
        shared = {
            name: value
            for name, value in first.items()
            if value != usual.get(name) and all(one.values.get(name) == value for one in failed)
        }
        return {} if any(_has(one, shared) for one in self._ran) else shared


def _has(config: Config, values: Mapping[str, Value]) -> bool:
    return all(config.values.get(name) == value for name, value in values.items())


def _error(failure: Failure) -> str:
    """Return what tells an error from another one: its line, and its first line of text without numbers."""
    first_line = failure.message.partition("\n")[0]
    return f"{failure.user_frame} {re.sub('[0-9]+', '#', first_line)}"
