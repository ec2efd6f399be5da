"""What steps gain without something that can be left out from here: taken with it and without it, in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import pairwise
from statistics import median

import torch
from msgspec.structs import replace

from autotune.child.clock import clock_for
from autotune.profile.backward_passes import BackwardPasses
from autotune.profile.calls import Calls
from autotune.profile.left_on import LeftOn
from autotune.profile.records import SlowLine
from autotune.profile.user_lines import UserLine
from autotune.targets.base import Step
from autotune.targets.loop import Training

ROUNDS = 12  # of two steps with and two without; the second of each two counts
FEWEST_ROUNDS = 3  # where these take long
AGREEING = 0.75  # of the rounds, at least, have to show a difference
Trying = Generator[None, Step, list[SlowLine]]


class Without:
    """Tries what was found, one after another: each `yield` is one optimizer step."""

    def __init__(
        self, training: Training, calls: Calls, backward: BackwardPasses, left_on: LeftOn, made_at: list[UserLine],
        most_seconds: float,
    ) -> None:  # fmt: skip
        """`made_at`: the lines that made optimizers. `most_seconds`: of one comparison, if it can be had so soon."""
        self._training, self._calls, self._backward, self._left_on = training, calls, backward, left_on
        self._made_at, self._most_seconds = made_at, most_seconds

    def try_all(self, found: tuple[SlowLine, ...], steps: int) -> Trying:
        """Return what was found, and what else can be tried; `steps` were watched before."""
        lines = list[SlowLine]()
        for one in found:
            if one.kind == "zeroing":
                seconds = yield from self._compare(lambda is_without: setattr(self._calls, "sets_to_none", is_without))
                one = replace(one, seconds=seconds)
            lines.append(one)
        for line, what in self._backward.unused(steps):
            seconds = yield from self._compare(self._limiting(line))
            lines.append(_line("unused", line, what, 1.0, seconds))
        for shown in self._left_on.found():
            seconds = yield from self._compare(self._left_on.without(shown))
            lines.append(_line("switch", self._left_on.lines.get(shown), shown, 1.0, seconds))
        if untrained := self._untrained():
            seconds = yield from self._compare(lambda is_without: _let_go(untrained, is_without))
            names = list(untrained)
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            made_at = self._made_at[-1] if self._made_at else None
            lines.append(_line("untrained", made_at, f"{names[0]}{more}", len(names), seconds))
        return lines

    def _limiting(self, line: UserLine) -> Callable[[bool], None]:
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

    def _compare(self, leave_out: Callable[[bool], None]) -> Generator[None, Step, float]:
        """Return the seconds by which a step is shorter without it; 0.0 if the rounds do not agree that it is.

        What is left out in one step may show in the next, so of two such steps the second counts.
        """
        clock, began, rounds = clock_for(self._training.plan.device), time.perf_counter(), 0
        computed = list[float]()
        with self._backward.watched(), self._calls.watched(), _again(leave_out):
            while rounds < ROUNDS and (rounds < FEWEST_ROUNDS or time.perf_counter() - began < self._most_seconds):
                for is_without in (False, True):
                    leave_out(is_without)
                    for _ in range(2):
                        yield
                        clock.mark()
                        computed.append(time.process_time())
                rounds += 1
        seconds = clock.intervals()[::2]
        share = agreed_share(seconds)
        if not share and self._training.plan.device == "cpu":
            # Others that share the cores make steps longer by chance; the time that this process computes, hardly.
            share = agreed_share([after - before for before, after in pairwise(computed)][::2])
        return share * median(seconds[::2])


def agreed_share(seconds: list[float]) -> float:
    """Return the share that steps are shorter by without something, of (with, without, with, ...); 0.0 if few are."""
    gains = [1 - without / usual for usual, without in zip(seconds[::2], seconds[1::2], strict=True)]
    return max(0.0, median(gains)) if sum(gain > 0 for gain in gains) >= AGREEING * len(gains) else 0.0


@contextmanager
def _again(leave_out: Callable[[bool], None]) -> Iterator[None]:
    """At the end nothing is left out, also where a step raised."""
    try:
        yield
    finally:
        leave_out(False)


def _line(kind: str, line: UserLine | None, what: str, count: float, seconds: float) -> SlowLine:
    place, code = (line.place, line.text) if line else ("", "")
    return SlowLine(kind=kind, place=place, code=code, what=what, count=count, seconds=seconds)  # type: ignore[arg-type]


def _let_go(parameters: dict[str, torch.nn.Parameter], is_without: bool) -> None:
    for one in parameters.values():
        one.grad = None if is_without else one.grad
        one.requires_grad_(not is_without)
