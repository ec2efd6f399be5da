"""The passes over one training, of some steps each: what each of them puts into it, and what it finds.

    warm-up ─► parts ─► memory ─► modules and loading ─► calls ─► operations ─► with and without ─► FLOPs ─► trace
    ─► --verify

Steps are not watched otherwise while their parts are timed; every other pass says where that time went. A pass is a
generator: each `yield` is one optimizer step. What it puts into the training it takes out at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from torch import nn

from autotune.child import device as devices
from autotune.profile.judge import expensive_lines
from autotune.profile.measuring.at_once import one_by_one
from autotune.profile.measuring.line_passes import FromTheStart, LinePasses, Passing
from autotune.profile.measuring.loading import LoadedLines
from autotune.profile.measuring.memory_history import MemoryHistory
from autotune.profile.measuring.memory_pass import MemoryPass, TensorHolders
from autotune.profile.measuring.module_times import ModuleTimes
from autotune.profile.measuring.samples import Samples
from autotune.profile.measuring.stopwatch import told_of_results
from autotune.profile.measuring.trace import captured, traced
from autotune.profile.measuring.user_lines import UserLine
from autotune.profile.measuring.verify import Verifying
from autotune.profile.measuring.without import Without
from autotune.profile.measuring.work_pass import WorkPass
from autotune.profile.records import ProfileRequest, ProfileResult, SlowLine
from autotune.targets.data import Epochs
from autotune.targets.loop import Training
from autotune.targets.ranks import world

VERIFYING_SHARE = 2  # one of so many: there may be several slow lines, and more rounds tell less
OF_RANKS = "With several ranks memory, operations of a step, storage, and steps without a line are not looked at."


class OurLoopPasses(LinePasses):
    """All passes over one training, and their results."""

    def __init__(
        self,
        training: Training,
        made_at: list[UserLine],
        from_the_start: FromTheStart,
        asked: ProfileRequest,
        history: MemoryHistory,
    ) -> None:
        super().__init__(
            training.plan.device, from_the_start, asked, lambda: (training.model,),
            lambda: training.update.optimizers if training.update else (),
        )  # fmt: skip
        self._has_others = world.world().size > 1
        self._training, self._made_at = training, made_at
        self._extent, self._output = asked.extent, asked.output
        self.samples = Samples(training.source)
        self._verify, self._source = asked.verify, training.source
        self._verifying: Verifying | None = None
        self._loading = LoadedLines(training.source, self.stopwatch)
        self._work = WorkPass([training.model], self.stopwatch, self._device, compiles=training.plan.compiles)
        self._memory, self._history = MemoryPass(self.stopwatch, self._device, self._told_of_batches), history
        self._memory.begin()
        self._without: Without | None = None

    def passes(self, phase: Callable[[str], None]) -> Passing:
        """Go through all passes in their order; `phase` is called when measuring begins."""
        if self._extent == "sites":
            yield from self._until_memory_runs_out()
            return
        with nullcontext() if self._training.plan.compiles else self._called.watched():  # a hook compiles anew
            yield from self._steps(least=3, enough=5, seconds=min(0.5, self._seconds))
        devices.synchronize(self._device)
        self._history.pause()
        phase("measure")
        if self._extent == "captured":
            yield from captured(self.stopwatch)
            return
        yield from self._time_parts()
        if self._extent == "whole" and not self._has_others:
            with self._history.recorded():
                self._between += yield from self._memory.steps(self._holders())
        if self._training.plan.compiles:
            self._leave_out("Modules and lines are not distinguished in a compiled model.")
        elif self._extent == "brief":
            yield from self._watch_lines()
        else:
            yield from self._time_modules()
            yield from self._watch_lines()
            if self._has_others:
                self._leave_out(OF_RANKS)
            else:
                yield from self._try_without()
                yield from self._count_operations(self._work)
        if self._agreed(self._output is not None):
            folder = None if self._output is None else Path(self._output)
            for why in (yield from traced(folder, self.stopwatch, self._device)):
                self._leave_out(why)
        if self._without is not None and self._verify:
            yield from self._try_slow_lines(self._without)

    def broke(self, error: Exception) -> bool:
        """Return whether the error is due to trying slow lines; if so, note that at these lines."""
        if self._verifying is None:
            return False
        told = f"{type(error).__name__}: {error}".partition("\n")[0]
        rest = f"steps cannot be taken again: {told}"  # so the training had not been changed
        if (at := self._verifying.at) is not None:
            self._tell(at, replace(at, unverified=f"steps end without it: {told}"))
            rest = "the training had ended before"
        for one in expensive_lines(self._found):
            if one.gain is None and not one.unverified:
                self._tell(one, replace(one, unverified=rest))
        return True

    def result(self) -> ProfileResult:
        """Return the readings; this reads further samples, and measures the peak rate of the device."""
        if self._extent in ("captured", "sites"):
            return self._found
        if self._verifying is None:  # else they were tried, too
            self._find_loading()
        if self._extent == "brief" or self._has_others:
            return self._found
        return replace(
            self._found,
            work=self._work.work(),
            bounds=self._work.bounds(),
            memory=self._memory.result(),
        )

    def _find_loading(self) -> None:
        """Read samples apart from the training, and find what they cost."""
        is_brief, waiting, result = self._extent == "brief", self._part_seconds()["data"], self._found
        if not is_brief:
            self.samples.read_beside()
        loading = [] if is_brief else self._loading.result(result.samples, waiting, result.seconds)
        if (tail := self.samples.result(result.samples, waiting, result.seconds)) is not None:
            loading = _without_tail(loading, self.samples.tail_seconds)
            self._add(tail)
        loader = self._source.loader if isinstance(self._source, Epochs) else None
        singly = one_by_one(loader, result.samples, waiting, result.seconds) if loader else None
        if singly is not None:
            loading = [_less(one, singly.seconds) if _function(one) == _function(singly) else one for one in loading]
            self._add(singly)
        self._add(*loading)

    def _timing(self, is_on: bool) -> None:
        self.samples.is_on = is_on

    def _agreed(self, is_so: bool) -> bool:
        """Return rank 0's value: ranks that take different numbers of steps would wait for each other for ever."""
        if not self._has_others:
            return is_so
        with self.stopwatch.paused():
            return bool(world.agreed(is_so))

    def _time_modules(self) -> Passing:
        model = self._training.model
        times = ModuleTimes([model], self.stopwatch, self._device, self._called.others_than([model]))
        with times.hooked(), self._loading.watched():
            steps = yield from self._steps(least=2, enough=8, seconds=self._seconds / 3)
        self._loading.stepped(steps)
        self._between += steps
        self._found = replace(self._found, modules=times.result(steps))

    def _holders(self) -> TensorHolders:
        training, update = self._training, self._training.update
        assert update is not None, "steps have been taken"
        averaged = [update.averaged] if isinstance(update.averaged, nn.Module) else []
        others = self._called.others_than([training.model, *averaged])
        return TensorHolders([training.model], update.optimizers, others, averaged, training.plan.compiles)

    def _told_of_batches(self, tell: Callable[[Any], None]) -> AbstractContextManager[None]:
        return told_of_results(self._training, "to_device", tell)

    def _try_without(self) -> Passing:
        trying = Without(self._training, self._calls, self._backward, self._left_on, self._made_at, self._most_seconds)
        found = yield from trying.try_all(self._found.slow_lines, self._watched)
        self._found, self._without = replace(self._found, slow_lines=tuple(found)), trying

    def _try_slow_lines(self, without: Without) -> Passing:
        """Try the slow lines that are expensive enough, after all other passes."""
        self._find_loading()
        self._verifying = Verifying(
            self._training, self._source, without, self._found.seconds, self._most_seconds / VERIFYING_SHARE
        )
        yield from self._verifying.try_each(expensive_lines(self._found), self._tell)

    def _tell(self, before: SlowLine, after: SlowLine) -> None:
        self._found = replace(
            self._found, slow_lines=tuple(after if one is before else one for one in self._found.slow_lines)
        )


def _less(one: SlowLine, seconds: float) -> SlowLine:
    """Return the line without those of its seconds that another finding has."""
    return replace(one, seconds=max(0.0, one.seconds - seconds))


def _function(one: SlowLine) -> tuple[str, str]:
    """Return the file and the function of a line."""
    place, _, function = one.place.partition(" in ")
    return place.rpartition(":")[0], function


def _without_tail(loading: list[SlowLine], tail_seconds: float) -> list[SlowLine]:
    """Return what loading costs besides slow samples: they take most in the line that takes most."""
    most = max(loading, key=lambda one: one.seconds, default=None)
    return [_less(one, tail_seconds) if one is most else one for one in loading]
