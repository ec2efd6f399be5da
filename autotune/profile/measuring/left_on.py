"""Settings of torch that are for debugging and were left on: where the user set them, and steps without them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch

from autotune.profile.measuring.stopwatch import replaced
from autotune.profile.measuring.user_lines import UserLine, calling_line


class _Setting(NamedTuple):
    shown: str
    function: str  # of torch, that sets it: its first argument is whether it is on
    is_on: Callable[[], bool]
    options: Callable[[], dict[str, bool]]  # as they are now


SETTINGS = (
    _Setting(
        "anomaly detection is", "set_anomaly_enabled", torch.is_anomaly_enabled,
        lambda: {"check_nan": torch.is_anomaly_check_nan_enabled()},
    ),
    _Setting(
        "deterministic algorithms are", "use_deterministic_algorithms", torch.are_deterministic_algorithms_enabled,
        lambda: {"warn_only": torch.is_deterministic_algorithms_warn_only_enabled()},
    ),
)  # fmt: skip


class LeftOn:
    """Finds the lines that switched `SETTINGS` on; watches from before the import of the user's code to the end."""

    def __init__(self) -> None:
        self.lines: dict[str, UserLine] = {}  # that put it on last, by what is shown of a setting
        self._put_on = set[str]()  # since steps are watched
        self._off = ""  # what is held off, whatever the user's code says
        self._set: dict[str, Callable[..., None]] = {one.shown: getattr(torch, one.function) for one in SETTINGS}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note which lines of the user's switch a setting on, until the `with` block ends."""
        with ExitStack() as stack:
            for one in SETTINGS:
                stack.enter_context(replaced(torch, one.function, self._setting(one)))
            yield

    def forget(self) -> None:
        """Forget settings so far: from now on only those count that the user's steps switch on."""
        self._put_on.clear()

    def found(self) -> list[str]:
        """Return the settings that are on, or that a step put on, as they are shown."""
        return [one.shown for one in SETTINGS if one.is_on() or one.shown in self._put_on]

    def without(self, shown: str) -> Callable[[bool], None]:
        """Return a function that, given True, keeps the setting off, and, given False, restores its present state."""
        (one,) = (one for one in SETTINGS if one.shown == shown)
        was_on, options = one.is_on(), one.options()

        def leave_out(is_without: bool) -> None:
            self._off = shown if is_without else ""
            if was_on:
                self._set[shown](not is_without, **options)

        return leave_out

    def _setting(self, one: _Setting) -> Callable[..., None]:
        def setting(mode: bool, *arguments: Any, **options: Any) -> None:
            line = calling_line(sys._getframe(1)) if mode else None
            if line is not None:
                self.lines[one.shown] = line
                self._put_on.add(one.shown)
            self._set[one.shown](mode and self._off != one.shown, *arguments, **options)

        return setting
