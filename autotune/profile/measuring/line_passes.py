"""The passes over the steps of any training: first parts are timed, then calls, then the time between operations.

A pass is a generator: each `yield` is one optimizer step. At its end it removes all hooks that it set.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace
from torch.optim import Optimizer

from autotune.child.full_collections import FullCollections
from autotune.child.memory_trace import track_on
from autotune.core.memory_growth import FEWEST_READINGS, MOST_STEPS_LEFT, memory_growth
from autotune.core.results import Outcome
from autotune.machine.host import host_memory
from autotune.machine.interference import interference_between, read_counters
from autotune.profile.measuring.backward_watch import BackwardWatch
from autotune.profile.measuring.called_modules import CalledModules
from autotune.profile.measuring.calls import CALLS, Calls, WatchedCall
from autotune.profile.measuring.communication import GraphSearches
from autotune.profile.measuring.core_time import moment, stretch_of
from autotune.profile.measuring.early_exchanges import EarlyExchanges
from autotune.profile.measuring.left_on import LeftOn
from autotune.profile.measuring.line_times import LineTimes
from autotune.profile.measuring.operations import FEWEST_GROWING, Operations
from autotune.profile.measuring.slow_lines import SlowLines
from autotune.profile.measuring.stopwatch import Stopwatch
from autotune.profile.measuring.user_lines import UserLine, driving_line, slow_line
from autotune.profile.measuring.work_pass import WorkPass
from autotune.profile.records import PARTS, Part, PartSeconds, ProfileRequest, ProfileResult, SlowLine
from autotune.targets.base import Step
from autotune.units import format_bytes

Passing = Generator[None, Step, Any]
MOST_PASS_STEPS = 400  # of one pass: three seconds of steps of 8 ms
MOST_PASS_SECONDS = 10.0  # of a pass, where its fewest steps do not take longer
MOST_TIMES = 10  # as many seconds as were asked for, likewise


class FromTheStart(NamedTuple):
    """The instruments that watch from before the import of the user's code."""

    left_on: LeftOn
    searches: GraphSearches


class LinePasses:
    """The passes over one training, and their results so far."""

    PYTHON_IN: tuple[Part, ...] = ("forward", "optimizer")  # the parts in which Python outside of torch is looked at
    CALLS: tuple[WatchedCall, ...] = CALLS

    def __init__(
        self, device: str, from_the_start: FromTheStart, asked: ProfileRequest,
        models: Callable[[], Sequence[torch.nn.Module]], optimizers: Callable[[], Sequence[Optimizer]],
    ) -> None:  # fmt: skip
        """`models` and `optimizers` are asked for when the first steps were taken."""
        self._left_on, self._searches = from_the_start
        self._device, self._seconds = device, asked.seconds
        self._models, self._optimizers = models, optimizers
        self._limit_bytes, self._is_brief = asked.memory_limit_bytes, asked.extent == "brief"
        self._most_seconds = (
            min(MOST_PASS_SECONDS, MOST_TIMES * asked.seconds) if asked.extent == "whole" else asked.seconds
        )
        self.stopwatch, self._track = Stopwatch(device), track_on(device)
        self._called = CalledModules()  # while warming up
        self._backward, self._early = BackwardWatch(optimizers), EarlyExchanges(self.stopwatch)
        self._collections = FullCollections()  # while parts are timed: other passes make objects of their own
        self._watched = 0  # steps in which calls were
        self._stretch = 1.0  # of what is computed, by others, while parts were timed
        self._between = 0  # steps from the middle of the timed ones to the first in which calls were watched
        self._found = ProfileResult(outcome=Outcome.OK)

    @cached_property
    def _calls(self) -> Calls:
        models = self._models()
        are_several = len(models) > 1 and len(self._optimizers()) > 1
        return Calls(models, self.stopwatch, self._device, self.CALLS, feed_each_other=are_several)

    def _steps(
        self, *, least: int, enough: int, seconds: float, each: Callable[[Step], None] = lambda step: None
    ) -> Generator[None, Step, int]:
        """Take `enough` steps for at least `seconds`, but only `least` if that takes too long; return their number."""
        began = time.perf_counter()
        for count in range(1, MOST_PASS_STEPS + 1):
            each((yield))
            self._track.step()  # also while warming up: growth has to go on to the end
            after = time.perf_counter() - began
            if self._agreed(count >= least and ((count >= enough and after > seconds) or after > self._most_seconds)):
                break
        return count

    def _until_memory_runs_out(self) -> Passing:
        yield from self._steps(least=MOST_PASS_STEPS, enough=MOST_PASS_STEPS, seconds=0.0)

    def _agreed(self, is_so: bool) -> bool:
        """Return the decision for all ranks that take these steps together."""
        return is_so

    def _time_parts(self) -> Passing:
        samples = list[int]()

        def each(step: Step) -> None:
            self.stopwatch.step(counts=counts(step))
            self._collections.step(step)
            if counts(step):
                samples.append(step.samples)

        before, began = read_counters(), moment()
        self._timing(True)
        self.stopwatch.start()
        with self._collections.watched():
            taken = yield from self._steps(least=5, enough=32, seconds=self._seconds, each=each)
        self._timing(False)
        seconds, each_step = self.stopwatch.stop()
        steps, interference = len(each_step), interference_between(before, read_counters())
        if threading.current_thread() is threading.main_thread():  # whose waiting is known
            self._stretch = stretch_of(began, moment(), interference.run_queue_wait_share)
        self._found = replace(
            self._found,
            interference=interference,
            steps=steps,
            step_seconds=each_step,
            samples=sum(samples) / steps,
            parts=tuple(PartSeconds(part=part, seconds=seconds.get(part, 0.0) / steps) for part in PARTS),
        )
        self._between = taken // 2

    def _timing(self, is_on: bool) -> None:
        """Called with True when parts begin to be timed, with False at the end; does nothing by default."""

    def _watch_lines(self) -> Passing:
        yield from self._watch_calls()
        yield from self._watch_operations()

    def _watch_calls(self) -> Passing:
        self._left_on.forget()

        def each(step: Step) -> None:
            self._watched += counts(step)
            self._calls.step(counts=counts(step))

        with self._backward.watched(), self._calls.watched(), self._searches.watched(), self._early.watched():
            yield from self._steps(least=3, enough=10, seconds=self._seconds / 3, each=each)
        waited = self._part_seconds()["communication"]  # no call waits longer, but for what is watched on another rank
        for one in (*self._calls.result(self._watched, self._stretch), *self._early.result(self._watched)):
            # Others may have had the cores more than while parts were timed.
            most = waited if one.kind in ("collective", "early exchange") else self._found.seconds
            self._add(replace(one, seconds=min(one.seconds, most)))
        self._add(*self._searches.result(self._watched))
        self._add(*self._full_collections())

    def _full_collections(self) -> list[SlowLine]:
        apart, outside = self._collections.steps_apart, self._calls.collections_outside  # else it is the call's time
        if apart is None or not outside or self._device != "cpu":  # an accelerator goes on meanwhile
            return []
        seconds = outside * self._collections.seconds_per_step
        return [slow_line("full collection", None, "", outside / apart, seconds)]

    def _watch_operations(self) -> Passing:
        """What is between operations, and which tensors stay: with the calls left out, that were looked at before."""
        if threading.current_thread() is not threading.main_thread():
            self._leave_out("Python time is not looked at: training does not run in the main thread.")
            return
        lines = LineTimes(self.stopwatch, self.PYTHON_IN, self._stretch)
        operations = Operations(lines, self._stretch)
        lines.is_counted_elsewhere, self._calls.after = lambda: self._calls.is_inside, lines.restart
        pauses, driving = list[Step](), list[UserLine | None]()

        def each(step: Step) -> None:
            operations.step()
            driving.append(driving_line(sys._getframe()))
            pauses.extend(() if counts(step) else (step,))

        with self._calls.watched(), operations.watched():
            steps = yield from self._steps(least=FEWEST_GROWING, enough=12, seconds=self._seconds / 2, each=each)
        if pauses and "other" in lines.parts:
            del lines.parts["other"]
            self._leave_out("Python between steps is not told: an evaluation or a checkpoint was among them.")
        if self._device == "cpu":
            seconds, driver = self._part_seconds(), driving[-1]
            self._add(*SlowLines(operations, lines, steps, seconds, self._device, self._stretch, driver).all())
        else:
            self._leave_out("Python time and float64 are not looked at on an accelerator, which computes meanwhile.")
        self._add(*self._growth(operations))

    def _count_operations(self, work: WorkPass) -> Passing:
        yield from work.steps()
        try:
            self._add(*work.slow_sizes(self._found.seconds))
        except Exception as error:  # such as out of memory: the rest of the profile is still useful
            self._leave_out(f"Sizes of products were not timed: {type(error).__name__}: {error}".partition("\n")[0])

    def _growth(self, operations: Operations) -> list[SlowLine]:
        """Return lines at which memory grows: by graphs of earlier steps if those grow, else by tensors that stay."""
        if len(self._track.readings) < FEWEST_READINGS:
            self._leave_out("Whether memory grows is not known: there was time for too few steps.")
        growth, kept = memory_growth(self._track.readings), operations.kept()
        left = int(self._free_bytes() / growth) if growth else MOST_STEPS_LEFT
        grown = {"bytes": growth, "steps_left": left if left < MOST_STEPS_LEFT else None}
        graph = self._backward.growing(self._between, self._part_seconds()["backward"])
        if graph is not None:
            return [replace(graph, **grown)]
        if kept is not None and (growth or self._is_brief):  # in a search the probes know by how much, from more steps
            line, holder = kept
            return [replace(slow_line("growth", line, holder, 1.0, 0.0), **grown)]
        if growth:  # large lists that come and go look like it where there is time for few steps
            self._leave_out(
                f"Memory grew by {format_bytes(growth)} a step, and no tensor was seen to stay: "
                f"perhaps the allocator's."
            )
        return []

    def _free_bytes(self) -> int:
        """Return the bytes that training may still take, in addition to a step's peak."""
        peak = max(used for _, used in self._track.readings)
        if self._device.startswith("cuda"):  # readings are of the ends of steps, where activations are freed
            peak = torch.cuda.max_memory_allocated(self._device)
        if self._limit_bytes is not None:
            return max(0, self._limit_bytes - peak)
        if self._device.startswith("cuda"):
            return torch.cuda.mem_get_info(self._device)[0] + torch.cuda.memory_reserved(self._device) - peak
        return host_memory().available_bytes

    def _part_seconds(self) -> dict[str, float]:
        return {one.part: one.seconds for one in self._found.parts}

    def _add(self, *lines: SlowLine) -> None:
        self._found = replace(self._found, slow_lines=(*self._found.slow_lines, *lines))

    def _leave_out(self, sentence: str) -> None:
        self._found = replace(self._found, left_out=(*self._found.left_out, sentence))


def counts(step: Step) -> bool:
    """Return whether the step counts: it contained no other work, such as an evaluation."""
    return not step.paused_seconds
