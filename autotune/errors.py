"""The exceptions that a caller would handle, each with its exit status on the command line.

    AutotuneError
    ├── UsageError            2   a flag, a value or a file of settings is wrong
    ├── TargetError           2   the user's training code does not fit the contract, or raised
    ├── StudyError            2   a study folder cannot be read, written or resumed
    │   └── StudyNotFound     2
    ├── NoRecommendation      1   the search ran, and no result was usable
    ├── RaceFailed            3   a contestant of a race does not train
    └── EnvironmentUnfit      3   this machine cannot do it: no such device, disk full, study folder read-only

Any other exception is a fault of autotune itself, and ends the command with 70. A failed probe is not an exception: it
is a `ProbeResult` whose outcome says what happened.
"""

from __future__ import annotations


class AutotuneError(Exception):
    """An error of three sentences for a person: what happened with values, why probably, what to do.

    `traceback` holds the frames of the user's code, innermost last; empty if the fault is not in running code.
    """

    exit_code = 1

    def __init__(self, message: str, *, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class UsageError(AutotuneError):
    """A flag, a setting or an argument has a wrong value."""

    exit_code = 2


class TargetError(AutotuneError):
    """The target (the user's training code) violates the contract or raised an exception."""

    exit_code = 2


class StudyError(AutotuneError):
    """A study folder exists but cannot be used as asked."""

    exit_code = 2


class StudyNotFound(StudyError):
    """No study lies at the given place."""


class NoRecommendation(AutotuneError):
    """The search ran, but no configuration could be recommended; the message says which failure dominated."""

    exit_code = 1


class RaceFailed(AutotuneError):
    """A contestant of a race failed, so that there is nothing to compare."""

    exit_code = 3  # 1 and 2 are verdicts of a race


class EnvironmentUnfit(AutotuneError):
    """The machine lacks what was asked for."""

    exit_code = 3


class EnvironmentMismatch(UserWarning):
    """A recommendation is being used on other hardware or another torch than it was measured with."""
