"""The passes over one training, of some steps each: what each of them puts into it, and what it finds.

    warm-up ─► parts ─► memory ─► modules and loading ─► calls ─► operations ─► with and without ─► FLOPs ─► trace
    ─► --verify

Steps are not watched otherwise while their parts are timed; every other pass says where that time went. A pass is a
generator: each `yield` is one optimizer step. What it puts into the training it takes out at its end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from autotune.child import device as devices
from autotune.child.memory_trace import track_on
from autotune.core.memory_growth import FEWEST_READINGS, memory_growth
from autotune.core.requests import ProfileRequest
from autotune.core.results import Outcome
from autotune.machine.interference import between, look
from autotune.profile import flops
from autotune.profile.backward_passes import BackwardPasses
from autotune.profile.calls import Calls
from autotune.profile.judge import findings
from autotune.profile.left_on import LeftOn
from autotune.profile.line_findings import LineFindings
from autotune.profile.line_times import LineTimes
from autotune.profile.loading import LoadedLines
from autotune.profile.memory_pass import MemoryPass
from autotune.profile.module_times import ModuleTimes
from autotune.profile.operations import FEWEST_GROWING, Operations
from autotune.profile.records import PARTS, PartSeconds, ProfileResult, SlowLine
from autotune.profile.samples import Samples
from autotune.profile.stopwatch import Stopwatch
from autotune.profile.trace import captured, traced
from autotune.profile.traffic import Traffic, limits_of
from autotune.profile.user_lines import UserLine
from autotune.profile.verify import Verifying
from autotune.profile.without import Without
from autotune.targets.base import Step
from autotune.targets.loop import Training
from autotune.units import format_bytes

Passing = Generator[None, Step, Any]
MOST_STEPS = 400  # of one pass: three seconds of steps of 8 ms
MOST_SECONDS = 10.0  # of a pass, where its fewest steps do not take longer
VERIFYING_SHARE = 2  # one of so many: there may be several findings, and more rounds tell less
MOST_TIMES = 10  # as many seconds as were asked for, likewise


class Profiling:
    """All passes over one training, and what they found."""

    def __init__(self, training: Training, made_at: list[UserLine], left_on: LeftOn, asked: ProfileRequest) -> None:
        self._training, self._made_at, self._device = training, made_at, training.plan.device
        self._left_on, self._seconds, self._extent, self._output = left_on, asked.seconds, asked.extent, asked.output
        self._verify, self._source = asked.verify, training.source
        self._verifying: Verifying | None = None
        self._most_seconds = min(MOST_SECONDS, MOST_TIMES * asked.seconds) if asked.extent == "whole" else asked.seconds
        self.stopwatch, self.samples = Stopwatch(self._device), Samples(training.source)
        self._loading = LoadedLines(training.source, self.stopwatch)
        self._calls, self._track = Calls(training.model, self.stopwatch, self._device), track_on(self._device)
        self._backward = BackwardPasses(lambda: training.update.optimizers if training.update else ())
        self._watched = 0  # steps in which calls were
        self._between = 0  # steps from the middle of the timed ones to the first in which calls were watched
        self._found = ProfileResult(outcome=Outcome.OK)
        self._flops: int | None = None
        self._traffic: Traffic | None = None
        self._memory = MemoryPass(training, self.stopwatch)
        self._without: Without | None = None

    def passes(self, phase: Callable[[str], None]) -> Passing:
        """All passes, in order."""
        yield from self._steps(least=3, enough=5, seconds=min(0.5, self._seconds))
        devices.synchronize(self._device)
        phase("measure")
        if self._extent == "captured":
            yield from captured(self.stopwatch)
            return
        yield from self._time_parts()
        if self._extent == "whole":
            self._between += yield from self._memory.steps()
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
        if self._without is not None and self._verify:
            yield from self._try_findings(self._without)

    def broke(self, error: Exception) -> bool:
        """Return whether what the training raised is because of a finding that was tried; say so beside it then."""
        if self._verifying is None or self._verifying.at is None:
            return False
        why = f"steps end without it: {type(error).__name__}: {error}".partition("\n")[0]
        self._tell(self._verifying.at, replace(self._verifying.at, unverified=why))
        for one in findings(self._found):
            if one.gain is None and not one.unverified:
                self._tell(one, replace(one, unverified="the training had ended before"))
        return True

    def result(self) -> ProfileResult:
        """Return what was found; reads samples beside the training, and measures the peak rate of the device."""
        if self._extent == "captured":
            return self._found
        if self._verifying is None:  # else they were tried, too
            self._find_loading()
        if self._extent == "brief":
            return self._found
        return replace(
            self._found,
            work=flops.work_of(self._training, self._flops),
            limits=limits_of(self._traffic, self._device) if self._traffic is not None else None,
            memory=self._memory.result(),
        )

    def _find_loading(self) -> None:
        """Read samples beside the training, and find what they cost."""
        is_brief, waiting, result = self._extent == "brief", self._part_seconds()["data"], self._found
        if not is_brief:
            self.samples.read_beside()
        loading = [] if is_brief else self._loading.result(result.samples, waiting, result.seconds)
        if (tail := self.samples.result(result.samples, waiting)) is not None:
            loading = _without_tail(loading, tail)
            self._add(tail)
        self._add(*loading)

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
        self._between = steps // 2

    def _time_modules(self) -> Passing:
        times = ModuleTimes(self._training.model, self.stopwatch, self._device)
        with times.hooked(), self._loading.watched():
            steps = yield from self._steps(least=2, enough=8, seconds=self._seconds / 3)
        self._loading.stepped(steps)
        self._between += steps
        self._found = replace(self._found, modules=times.result(steps))

    def _count_operations(self) -> Passing:
        with flops.counted(self._device) as counter, Traffic() as self._traffic:
            yield
        self._flops = counter.get_total_flops()

    def _watch_lines(self) -> Passing:
        yield from self._watch_calls()
        yield from self._watch_operations()

    def _watch_calls(self) -> Passing:
        self._left_on.forget()
        with self._backward.watched(), self._calls.watched():
            self._watched = yield from self._steps(least=3, enough=10, seconds=self._seconds / 3)
        self._add(*self._calls.result(self._watched))

    def _watch_operations(self) -> Passing:
        """What is between operations, and which tensors stay: with the calls left out, that were looked at before."""
        if threading.current_thread() is not threading.main_thread():
            self._leave_out("Python time is not looked at: training does not run in the main thread.")
            return
        lines = LineTimes(self.stopwatch, ("forward", "optimizer"))
        operations = Operations(lines)
        lines.is_counted_elsewhere, self._calls.after = lambda: self._calls.is_inside, lines.restart
        with self._calls.watched(), operations.watched():
            steps = yield from self._steps(
                least=FEWEST_GROWING, enough=12, seconds=self._seconds / 2, each=lambda step: operations.step()
            )
        if self._device == "cpu":
            self._add(*LineFindings(operations, lines, steps, self._part_seconds(), self._device).all())
        else:
            self._leave_out("Python time and float64 are not looked at on an accelerator, which computes meanwhile.")
        self._add(*self._growth(operations))

    def _growth(self, operations: Operations) -> list[SlowLine]:
        """Memory that grows: by the graphs of earlier steps, where those do, else by tensors that stay."""
        if len(self._track.readings) < FEWEST_READINGS:
            self._leave_out("Whether memory grows is not known: there was time for too few steps.")
        growth, kept = memory_growth(self._track.readings), operations.kept()
        graph = self._backward.growing(self._between, self._part_seconds()["backward"])
        if graph is not None:
            return [replace(graph, bytes=growth)]
        if growth and kept is not None:
            line, holder = kept
            return [
                SlowLine(
                    kind="growth", place=line.place, code=line.text, what=holder, count=1.0, seconds=0.0, bytes=growth
                )
            ]
        if growth:  # large lists that come and go look like it where there is time for few steps
            self._leave_out(
                f"Memory grew by {format_bytes(growth)} a step, and no tensor was seen to stay: "
                f"perhaps the allocator's."
            )
        return []

    def _try_without(self) -> Passing:
        trying = Without(self._training, self._calls, self._backward, self._left_on, self._made_at, self._most_seconds)
        found = yield from trying.try_all(self._found.findings, self._watched)
        self._found, self._without = replace(self._found, findings=tuple(found)), trying

    def _try_findings(self, without: Without) -> Passing:
        """Try what costs enough to be told, after all that others look at."""
        self._find_loading()
        self._verifying = Verifying(
            self._training, self._source, without, self._found.seconds, self._most_seconds / VERIFYING_SHARE
        )
        yield from self._verifying.try_each(findings(self._found), self._tell)

    def _tell(self, before: SlowLine, after: SlowLine) -> None:
        self._found = replace(
            self._found, findings=tuple(after if one is before else one for one in self._found.findings)
        )

    def _part_seconds(self) -> dict[str, float]:
        return {one.part: one.seconds for one in self._found.parts}

    def _add(self, *lines: SlowLine) -> None:
        self._found = replace(self._found, findings=(*self._found.findings, *lines))

    def _leave_out(self, sentence: str) -> None:
        self._found = replace(self._found, left_out=(*self._found.left_out, sentence))


def _without_tail(loading: list[SlowLine], tail: SlowLine) -> list[SlowLine]:
    """Return what loading costs besides slow samples: they take most in the line that takes most."""
    most = max(loading, key=lambda one: one.seconds, default=None)
    return [replace(one, seconds=max(0.0, one.seconds - tail.seconds)) if one is most else one for one in loading]
