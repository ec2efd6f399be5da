"""The passes over a training whose loop is the user's: a command, or a Trainer. Passes that need our loop are left out.

warm-up ─► parts ─► loading ─► calls ─► operations ─► trace
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import nn
from torch._dynamo.utils import counters
from torch.optim import Optimizer

from autotune.child import device as devices
from autotune.errors import TargetError
from autotune.profile.measuring.calls import CALLS, WatchedCall
from autotune.profile.measuring.line_passes import FromTheStart, LinePasses, Passing
from autotune.profile.measuring.loading import LoadedLines
from autotune.profile.measuring.own_parts import OwnParts
from autotune.profile.measuring.trace import captured, traced
from autotune.profile.records import Part, ProfileRequest, ProfileResult
from autotune.targets.commands.watching.stepping_optimizers import trained_by
from autotune.targets.commands.watching.trained_parameters import modules_with
from autotune.targets.own_loop import OwnSession

LEFT_OUT = (
    "Its loop is its own: copying to the device is part of `other`, and modules, operations of a step, memory, "
    "storage, and steps without a line are not looked at."
)


class UserLoopPasses(LinePasses):
    """All passes over one training, and their results."""

    PYTHON_IN: tuple[Part, ...] = ("forward", "optimizer", "other")  # what a loop does besides is the user's, too
    CALLS: tuple[WatchedCall, ...] = (*CALLS, (Optimizer, "zero_grad", "zeroing", "zero_grad(set_to_none=False)"))

    def __init__(self, session: OwnSession, device: str, from_the_start: FromTheStart, asked: ProfileRequest) -> None:
        super().__init__(device, from_the_start, asked, self._trained, lambda: self.parts.optimizers)
        self._session, self._output, self._extent = session, asked.output, asked.extent
        self.parts = OwnParts(self.stopwatch)
        self._loading = LoadedLines(None, self.stopwatch)

    def passes(self, phase: Callable[[str], None]) -> Passing:
        """Go through all passes in their order; `phase` is called when measuring begins."""
        if self._extent == "sites":
            yield from self._until_memory_runs_out()
            return
        yield from self._steps(least=2, enough=3, seconds=0.0)
        self.parts.found()
        yield from self._steps(least=2, enough=4, seconds=min(0.5, self._seconds))
        devices.synchronize(self._device)
        phase("measure")
        if self._extent == "captured":
            yield from captured(self.stopwatch)
            return
        yield from self._time_parts()
        self._leave_out(LEFT_OUT)
        if counters["frames"]:
            self._leave_out("Lines are not distinguished in a compiled model.")
        else:
            yield from self._watch_loading()
            yield from self._watch_lines()
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
        return self._found

    def _watch_loading(self) -> Passing:
        with self._loading.watched():
            steps = yield from self._steps(least=2, enough=8, seconds=self._seconds / 3)
        self._loading.stepped(steps)
        self._between += steps

    def _trained(self) -> list[nn.Module]:
        models = modules_with([one for each in self.parts.optimizers for one in trained_by(each)])
        if not models:
            raise TargetError(
                f"{self._session.label} trains parameters of no module. It is not known which calls are the model's. "
                f"Profile a file of model() and dataset(): autotune profile model.py."
            )
        return models
