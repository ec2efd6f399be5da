"""What steps gain without something that can be left out from here: taken with it and without it, in turn."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median

import torch
from msgspec.structs import replace

from autotune.profile.measuring.backward_watch import BackwardWatch
from autotune.profile.measuring.calls import Calls
from autotune.profile.measuring.comparison import LeavingOut, compare
from autotune.profile.measuring.left_on import LeftOn
from autotune.profile.measuring.user_lines import UserLine, slow_line
from autotune.profile.records import SlowLine, Slowness
from autotune.targets.base import Step
from autotune.targets.loop import Training

Trying = Generator[None, Step, list[SlowLine]]


class Without:
    """Measures steps without each slow line in turn: each `yield` is one optimizer step."""

    def __init__(
        self, training: Training, calls: Calls, backward: BackwardWatch, left_on: LeftOn, made_at: list[UserLine],
        most_seconds: float,
    ) -> None:  # fmt: skip
        """`made_at`: the lines that made optimizers. `most_seconds`: of one comparison, if it can be had so soon."""
        self._training, self._calls, self._backward, self._left_on = training, calls, backward, left_on
        self._made_at, self._most_seconds = made_at, most_seconds
        self._ways: dict[tuple[str, str, str], LeavingOut] = {}

    def try_all(self, found: tuple[SlowLine, ...], steps: int) -> Trying:
        """Return what was found, and what else can be tried; `steps` were watched before."""
        lines = list[SlowLine]()
        for one in found:
            if one.kind == "zeroing":
                seconds = yield from self._compare(self._set_to_none)
                one = replace(one, seconds=seconds)
            lines.append(one)
        for line, what in self._backward.unused(steps):
            lines.append((yield from self._try("unused", line, what, 1.0, self._limiting(line))))
        for shown in self._left_on.found():
            set_at = self._left_on.lines.get(shown)
            lines.append((yield from self._try("switch", set_at, shown, 1.0, self._left_on.without(shown))))
        if untrained := self._untrained():
            names = list(untrained)
            what = names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
            letting_go = partial(_let_go, untrained)
            made_at = self._made_at[-1] if self._made_at else None
            lines.append((yield from self._try("untrained", made_at, what, len(names), letting_go)))
        return lines

    @contextmanager
    def watched(self) -> Iterator[None]:
        """What is left out is left out by those who watch it."""
        with self._backward.watched(), self._calls.watched():
            yield

    def way(self, one: SlowLine) -> LeavingOut | None:
        """Return a function that leaves a slow line out inside `watched`; None: it is not tried here."""
        if one.kind == "zeroing":
            return self._set_to_none
        return self._ways.get((one.kind, one.place, one.what))

    def _try(
        self, kind: Slowness, line: UserLine | None, what: str, count: float, leave_out: LeavingOut
    ) -> Generator[None, Step, SlowLine]:
        seconds = yield from self._compare(leave_out)
        found = slow_line(kind, line, what, count, seconds)
        self._ways[kind, found.place, what] = leave_out
        return found

    def _set_to_none(self, is_without: bool) -> None:
        self._calls.sets_to_none = is_without

    def _limiting(self, line: UserLine) -> LeavingOut:
        return lambda is_without: setattr(self._backward, "limited", line if is_without else None)

    def _untrained(self) -> dict[str, torch.nn.Parameter]:
        """Return the parameters that got a gradient in the last step, which no optimizer has."""
        assert self._training.update is not None, "steps have been taken"
        trained = {
            id(one)
            for each in self._training.update.optimizers
            for group in each.param_groups
            for one in group["params"]
        }
        return {
            name: one
            for name, one in self._training.model.named_parameters()
            if one.grad is not None and id(one) not in trained
        }

    def _compare(self, leave_out: LeavingOut) -> Generator[None, Step, float]:
        """Return the seconds by which a step is shorter without it; 0.0 if the rounds do not agree."""
        device = self._training.plan.device
        with self.watched():
            compared = yield from compare(leave_out, device, self._most_seconds)
        return compared.share(is_on_host=device == "cpu") * median(compared.seconds[::2])


def _let_go(parameters: dict[str, torch.nn.Parameter], is_without: bool) -> None:
    for one in parameters.values():
        one.grad = None if is_without else one.grad
        one.requires_grad_(not is_without)
