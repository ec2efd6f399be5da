"""The passes over one training, of some steps each: what each of them puts into it, and what it finds.

    warm-up ─► parts ─► memory ─► modules ─► calls ─► between operations ─► with and without ─► operations ─► trace

Steps are not watched otherwise while their parts are timed; every other pass says where that time went. A pass is a
generator: each `yield` is one optimizer step. What it puts into the training it takes out at its end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from msgspec.structs import replace

from autotune.child import device as devices
from autotune.child.clock import clock_for
from autotune.child.memory_trace import track_on
from autotune.core.memory_growth import FEWEST_READINGS, memory_growth
from autotune.core.requests import ProfileRequest
from autotune.core.results import Outcome
from autotune.machine.interference import between, look
from autotune.profile import flops
from autotune.profile.calls import Calls
from autotune.profile.judge import LEAST_SHARE
from autotune.profile.memory_pass import MemoryPass
from autotune.profile.module_times import ModuleTimes
from autotune.profile.operations import Operations, by_function
from autotune.profile.records import PARTS, PartSeconds, ProfileResult, SlowLine
from autotune.profile.samples import Samples
from autotune.profile.stopwatch import Stopwatch
from autotune.profile.trace import captured, traced
from autotune.profile.user_lines import UserLine
from autotune.targets.base import Step
from autotune.targets.loop import Training
from autotune.units import format_bytes

Passing = Generator[None, Step, Any]
MOST_STEPS = 400  # of one pass: three seconds of steps of 8 ms
MOST_SECONDS = 10.0  # of a pass, where its fewest steps do not take longer
ROUNDS = 12  # of two steps with and two without; the second of each two counts
DOUBLE_SIZE = 512  # of the square matrices whose products compare float64 with float32
AGREEING = 0.75  # of the rounds, at least, have to show a difference


class Profiling:
    """All passes over one training, and what they found."""

    def __init__(self, training: Training, made_at: list[UserLine], asked: ProfileRequest) -> None:
        self._training, self._made_at, self._device = training, made_at, training.plan.device
        self._seconds, self._extent, self._output = asked.seconds, asked.extent, asked.output
        self._most_seconds = MOST_SECONDS if asked.extent == "whole" else asked.seconds
        self.stopwatch, self.samples = Stopwatch(self._device), Samples(training.source)
        self._calls, self._track = Calls(self.stopwatch), track_on(self._device)
        self._found = ProfileResult(outcome=Outcome.OK)
        self._flops: int | None = None
        self._memory = MemoryPass(training, self.stopwatch)

    def passes(self, phase: Callable[[str], None]) -> Passing:
        """All passes, in order."""
        yield from self._steps(least=3, enough=5, seconds=0.5)
        devices.synchronize(self._device)
        phase("measure")
        if self._extent == "captured":
            yield from captured(self.stopwatch)
            return
        yield from self._time_parts()
        if self._extent == "whole":
            yield from self._memory.steps()
        if self._training.plan.compiles:
            self._leave_out("Modules and lines are not told apart in a compiled model.")
        elif self._extent == "brief":
            yield from self._watch_lines()
        else:
            yield from self._time_modules()
            yield from self._watch_lines()
            yield from self._try_without()
            if not flops.uncountable(self._training):
                yield from self._count_operations()
        if self._output is not None:
            for why in (yield from traced(Path(self._output), self.stopwatch, self._device)):
                self._leave_out(why)

    def result(self) -> ProfileResult:
        """Return what was found; reads samples beside the training, and measures the peak rate of the device."""
        if self._extent == "captured":
            return self._found
        if self._extent == "whole":
            self.samples.read_beside()
        waiting = next(one.seconds for one in self._found.parts if one.part == "data")
        if (tail := self.samples.result(self._found.samples, waiting)) is not None:
            self._add(tail)
        if self._extent == "brief":
            return self._found
        return replace(self._found, work=flops.work_of(self._training, self._flops), memory=self._memory.result())

    def _steps(
        self, *, least: int, enough: int, seconds: float, each: Callable[[Step], None] = lambda step: None
    ) -> Generator[None, Step, int]:
        """Take `enough` steps and for so many seconds, but only `least` where that takes too long; return the count."""
        began = time.perf_counter()
        for count in range(1, MOST_STEPS + 1):
            each((yield))
            self._track.step()  # also while warming up: growth has to go on to the end
            after = time.perf_counter() - began
            if count >= least and ((count >= enough and after > seconds) or after > self._most_seconds):
                break
        return count

    def _time_parts(self) -> Passing:
        samples = list[int]()

        def each(step: Step) -> None:
            self.stopwatch.step()
            samples.append(step.samples)

        before = look()
        self.samples.is_on = True
        self.stopwatch.start()
        steps = yield from self._steps(least=5, enough=32, seconds=self._seconds, each=each)
        self.samples.is_on = False
        seconds, each_step = self.stopwatch.stop()
        self._found = replace(
            self._found,
            contamination=between(before, look()),
            steps=steps,
            step_seconds=each_step,
            samples=sum(samples) / steps,
            parts=tuple(PartSeconds(part=part, seconds=seconds.get(part, 0.0) / steps) for part in PARTS),
        )

    def _time_modules(self) -> Passing:
        times = ModuleTimes(self._training.model, self.stopwatch, self._device)
        with times.hooked():
            steps = yield from self._steps(least=2, enough=8, seconds=self._seconds / 3)
        self._found = replace(self._found, modules=times.result(steps))

    def _count_operations(self) -> Passing:
        with flops.counted(self._device) as counter:
            yield
        self._flops = counter.get_total_flops()

    def _watch_lines(self) -> Passing:
        yield from self._watch_calls()
        yield from self._watch_operations()

    def _watch_calls(self) -> Passing:
        with self._calls.watched():
            steps = yield from self._steps(least=3, enough=10, seconds=self._seconds / 3)
        self._add(*self._calls.result(steps))

    def _watch_operations(self) -> Passing:
        """What is between operations, and which tensors stay: with the calls left out, that were looked at before."""
        if threading.current_thread() is not threading.main_thread():
            self._leave_out("Python time is not looked at: training does not run in the main thread.")
            return
        operations = Operations(self.stopwatch)
        self._calls.after = operations.restart
        with self._calls.watched(), operations.watched():
            steps = yield from self._steps(
                least=4, enough=12, seconds=self._seconds / 2, each=lambda step: operations.step()
            )
        if self._device == "cpu":
            self._add(*self._python(operations, steps), *self._doubles(operations))
        else:
            self._leave_out("Python time and float64 are not looked at on an accelerator, which computes meanwhile.")
        if len(self._track.readings) < FEWEST_READINGS:
            self._leave_out("Whether memory grows is not known: there was time for too few steps.")
        growth, kept = memory_growth(self._track.readings), operations.kept()
        if growth and kept is not None:
            line, holder = kept
            self._add(
                SlowLine(
                    kind="growth", place=line.place, code=line.text, what=holder, count=1.0, seconds=0.0, bytes=growth
                )
            )
        elif growth:  # large lists that come and go look like it where there is time for few steps
            self._leave_out(
                f"Memory grew by {format_bytes(growth)} a step, and no tensor was seen to stay: "
                f"perhaps the allocator's."
            )

    def _python(self, operations: Operations, steps: int) -> list[SlowLine]:
        """Held against the parts: watched steps are slower, and only what those show beside operations is there."""
        forward = next(one.seconds for one in self._found.parts if one.part == "forward")
        real = max(0.0, forward - operations.inside / steps)
        share = min(1.0, real / (operations.between / steps)) if operations.between else 0.0
        return [
            SlowLine(
                kind="python", place=line.place, code=line.text, what=line.function, count=1.0,
                seconds=seconds / steps * share,
            )
            for line, seconds in by_function(operations.outside).items()
        ]  # fmt: skip

    def _doubles(self, operations: Operations) -> list[SlowLine]:
        """Their share of both passes is that of the operations; float32 is taken to be as much faster as a product."""
        line = operations.doubling()
        share = operations.doubled.total() / operations.inside if operations.inside else 0.0
        if line is None or share < LEAST_SHARE:
            return []
        single, double = (
            flops.peak_flops(self._device, dtype, DOUBLE_SIZE) for dtype in (torch.float32, torch.float64)
        )
        passes = sum(one.seconds for one in self._found.parts if one.part in ("forward", "backward"))
        seconds = passes * share * max(0.0, 1 - double / single)
        return [SlowLine(kind="float64", place=line.place, code=line.text, what="", count=1.0, seconds=seconds)]

    def _try_without(self) -> Passing:
        """Take steps with and without what can be left out from here, and see what that gives."""
        for number, one in enumerate(self._found.findings):
            if one.kind == "zeroing":
                seconds = yield from self._compare(lambda is_without: setattr(self._calls, "sets_to_none", is_without))
                found = list(self._found.findings)
                found[number] = replace(one, seconds=seconds)
                self._found = replace(self._found, findings=tuple(found))
        untrained = self._untrained()
        if untrained:
            names = list(untrained)
            seconds = yield from self._compare(lambda is_without: _let_go(untrained, is_without))
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            line = self._made_at[-1] if self._made_at else None
            self._add(
                SlowLine(
                    kind="untrained", place=line.place if line else "", code=line.text if line else "",
                    what=f"{names[0]}{more}", count=len(names), seconds=seconds,
                )
            )  # fmt: skip

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
        clock, began, rounds = clock_for(self._device), time.perf_counter(), 0
        with self._calls.watched():
            while rounds < ROUNDS and (rounds < 3 or time.perf_counter() - began < MOST_SECONDS):
                for is_without in (False, True):
                    leave_out(is_without)
                    for _ in range(2):
                        yield
                        clock.mark()
                rounds += 1
            leave_out(False)
        counting = clock.intervals()[::2]
        gains = [usual - without for usual, without in zip(counting[::2], counting[1::2], strict=True)]
        return max(0.0, median(gains)) if sum(gain > 0 for gain in gains) >= AGREEING * rounds else 0.0

    def _add(self, *lines: SlowLine) -> None:
        self._found = replace(self._found, findings=(*self._found.findings, *lines))

    def _leave_out(self, sentence: str) -> None:
        self._found = replace(self._found, left_out=(*self._found.left_out, sentence))


def _let_go(parameters: dict[str, torch.nn.Parameter], is_without: bool) -> None:
    for one in parameters.values():
        one.grad = None if is_without else one.grad
        one.requires_grad_(not is_without)
