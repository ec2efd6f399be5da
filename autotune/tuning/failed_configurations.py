"""The configurations that never ran: how many ended in which way, and with which error of the user's code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.results import Failure, Outcome
from autotune.failures.words import ended_early, what_happened
from autotune.harmless import cropped
from autotune.objectives.verdict import WORDS
from autotune.study.history import History

LONGEST_ERROR = 120  # characters of an error within a sentence


@dataclass(frozen=True, kw_only=True)
class FailedConfigurations:
    """The configurations without a measurement, by the end of their last probe; `total` is their number."""

    total: int = 0
    hung: int = 0
    crashed: int = 0
    errors: tuple[Failure, ...] = ()  # of the user's code

    @classmethod
    def of(cls, history: History) -> Self:
        """Return those of a study."""
        results = [trial.result for trial in history.never_ran.values()]
        ends = Counter(one.outcome for one in results)
        failures = [one.failure for one in results if one.outcome is Outcome.USER_ERROR]
        return cls(
            total=len(results),
            hung=ends[Outcome.TIMEOUT],
            crashed=ends[Outcome.CRASHED],
            errors=tuple(one for one in failures if one is not None and not ended_early(one)),
        )

    @property
    def unknown(self) -> int:
        """How many say nothing about their rate: what ran out of memory, for example, cannot be used anyway."""
        return self.hung + self.crashed + len(self.errors)

    def warning(self, fix_of: Callable[[Failure], str] = lambda failure: "") -> Notice | None:
        """Return the warning that their rates are unknown, with the most frequent error of the user's code, if any.

        `fix_of` returns what `--fix` takes so that the code does not fail, as far as that is known.
        """
        if self.errors:
            alike = self._most_frequent_error()
            first, place, fix = alike[0], alike[0].user_frame, fix_of(alike[0])
            line = place.rpartition(" in ")[0] or "it"
            return notice(
                Code.CONFIGURATIONS_FAILED, count=len(self.errors), outcome="failed in your code",
                error=cropped(what_happened(first, place).partition("\n")[0], LONGEST_ERROR),
                others=len(self.errors) - len(alike) or None, hung=self.hung or None, crashed=self.crashed or None,
                place=None if fix else line, line=line if fix else None, fix=fix or None,
                accidents=self.hung + self.crashed or None,
            )  # fmt: skip
        if not self.unknown:
            return None
        return notice(
            Code.CONFIGURATIONS_FAILED, count=self.hung or self.crashed,
            outcome=WORDS[Outcome.TIMEOUT if self.hung else Outcome.CRASHED],
            crashed=(self.hung and self.crashed) or None, accidents=self.unknown,
        )  # fmt: skip

    def _most_frequent_error(self) -> list[Failure]:
        """Return the failures of the line that most of them have: their messages often differ in a number."""
        lines = [one.user_frame or one.message for one in self.errors]
        (most, _), *_ = Counter(lines).most_common(1)
        return [one for one, line in zip(self.errors, lines, strict=True) if line == most]
