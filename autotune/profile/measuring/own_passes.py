"""The passes over a training whose loop is the user's: a command, or a Trainer. Passes that need our loop are left out.

warm-up ─► parts ─► memory ─► modules and loading ─► calls ─► operations ─► FLOPs ─► trace
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace
from torch import nn
from torch._dynamo.utils import counters
from torch.optim import Optimizer

from autotune.child import device as devices
from autotune.errors import TargetError
from autotune.profile.measuring.calls import CALLS, WatchedCall
from autotune.profile.measuring.line_passes import FromTheStart, LinePasses, Passing, counts
from autotune.profile.measuring.loading import LoadedLines
from autotune.profile.measuring.memory_pass import MemoryPass, TensorHolders
from autotune.profile.measuring.module_times import ModuleTimes
from autotune.profile.measuring.own_parts import OwnParts
from autotune.profile.measuring.trace import captured, traced
from autotune.profile.measuring.work_pass import WorkPass
from autotune.profile.records import Part, ProfileRequest, ProfileResult
from autotune.targets.base import Step
from autotune.targets.commands.distributed import world_size
from autotune.targets.commands.watching.stepping_optimizers import trained_by
from autotune.targets.commands.watching.trained_parameters import modules_with
from autotune.targets.live_modules import live_modules
from autotune.targets.own_loop import OwnSession

LEFT_OUT = (
    "Its loop is its own: copying to the device is part of `other`, and memory by shapes alone, storage, and steps "
    "without a line are not looked at."
)
OF_SEVERAL = "With several ranks or replicas memory and operations of a step are not looked at."


class UserLoopPasses(LinePasses):
    """All passes over one training, and their results."""

    PYTHON_IN: tuple[Part, ...] = ("forward", "optimizer", "other")  # what a loop does besides is the user's, too
    CALLS: tuple[WatchedCall, ...] = (*CALLS, (Optimizer, "zero_grad", "zeroing", "zero_grad(set_to_none=False)"))

    def __init__(self, session: OwnSession, device: str, from_the_start: FromTheStart, asked: ProfileRequest) -> None:
        super().__init__(device, from_the_start, asked, self._trained, lambda: self.parts.optimizers)
        self._session, self._output, self._extent = session, asked.output, asked.extent
        self._memory = MemoryPass(
            self.stopwatch, device, lambda tell: self.parts.told_of_batches(tell),
            preparing=lambda: self.stopwatch.current == "other",
        )  # fmt: skip
        self.parts = OwnParts(self.stopwatch, self._memory.begin)
        self._loading = LoadedLines(None, self.stopwatch)
        self._work: WorkPass | None = None

    def passes(self, phase: Callable[[str], None]) -> Passing:
        """Go through all passes in their order; `phase` is called when measuring begins."""
        if self._extent == "sites":
            yield from self._until_memory_runs_out()
            return
        yield from self._steps(least=2, enough=3, seconds=0.0)
        self.parts.found()
        with self._called.watched():
            yield from self._steps(least=2, enough=4, seconds=min(0.5, self._seconds))
        devices.synchronize(self._device)
        phase("measure")
        if self._extent == "captured":
            yield from captured(self.stopwatch)
            return
        yield from self._time_parts()
        self._leave_out(LEFT_OUT)
        is_compiled, models = bool(counters["frames"]), self._trained()
        others = self._called.others_than(models)
        if world_size() == 1 and not _replicates():
            self._between += yield from self._memory.steps(
                TensorHolders(models, self.parts.optimizers, others, is_compiled=is_compiled)
            )
            self._work = WorkPass(models, self.stopwatch, self._device, compiles=is_compiled)
        else:
            self._leave_out(OF_SEVERAL)
        if is_compiled:
            self._leave_out("Modules and lines are not distinguished in a compiled model.")
        else:
            yield from self._time_modules(models, others)
            yield from self._watch_lines()
            if self._work is not None:
                yield from self._count_operations(self._work)
        if self._output is not None:
            for why in (yield from traced(Path(self._output), self.stopwatch, self._device)):
                self._leave_out(why)

    def ended(self) -> bool:
        """Note that the loop ended before the passes; return whether enough was measured."""
        if self._found.parts:
            self._leave_out("It ended before all was looked at: let it train for more steps.")
        return bool(self._found.parts)

    def result(self) -> ProfileResult:
        """Return the readings of all passes so far."""
        if self._extent in ("captured", "sites"):
            return self._found
        self._add(*self._loading.result(self._found.samples, self._part_seconds()["data"], self._found.seconds))
        if self._session.observed().workers:
            self._leave_out("What loader workers load is not looked at: they are other processes.")
        if self._work is None:
            return self._found
        return replace(self._found, work=self._work.work(), bounds=self._work.bounds(), memory=self._memory.result())

    def _time_modules(self, models: Sequence[nn.Module], others: Sequence[nn.Module]) -> Passing:
        times, counted = ModuleTimes(models, self.stopwatch, self._device, others), list[Step]()

        def each(step: Step) -> None:
            times.step(counts=counts(step))
            counted.extend((step,) if counts(step) else ())

        with times.hooked(), self._loading.watched():
            steps = yield from self._steps(least=2, enough=8, seconds=self._seconds / 3, each=each)
        self._loading.stepped(steps)
        self._between += steps
        if counted:
            self._found = replace(self._found, modules=times.result(len(counted)))

    def _trained(self) -> list[nn.Module]:
        models = modules_with([one for each in self.parts.optimizers for one in trained_by(each)])
        if not models:
            raise TargetError(
                f"{self._session.label} trains parameters of no module. It is not known which calls are the model's. "
                f"Profile a file of model() and dataset(): autotune profile model.py."
            )
        return models


def _replicates() -> bool:
    """Return whether a step runs in several threads, each with a replica of the model (not run on several GPUs)."""
    return any(isinstance(one, nn.DataParallel) and len(one.device_ids) > 1 for one in live_modules())
