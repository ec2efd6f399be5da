"""What the user's own lines do in forward pass and loss: the time outside of torch's operations, and tensors kept.

    user's line ─ Python ─► operation ─ torch ─► user's line ─ Python, NumPy, files ─► ...
                     ▲                                  ▲
                     └── counted for the line ──────────┘  by a timer signal every millisecond, and at each operation

Between operations a timer signal looks where the main thread is. Watching makes operations slower; what is counted is
the time between them, which `passes.py` holds against steps that were not watched. On a CPU only: an accelerator
computes meanwhile.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from autotune.profile.stopwatch import Stopwatch
from autotune.profile.user_lines import UserLine, calling_line, owner

TICK_SECONDS = 0.001  # of the timer: a line that takes a hundredth of a step of 50 ms is seen in every second step
FEWEST_KEPT = 3  # tensors of one line from as many steps: one may be what the user shows as the last loss


class Operations(TorchFunctionMode):
    """Watches torch's operations and what is between them."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        super().__init__()
        self._stopwatch = stopwatch
        self._last: float | None = None  # when an operation ended, or the signal came; None: not in the forward pass
        self._step = 0
        self._made: dict[int, tuple[weakref.ref[Tensor], UserLine, int]] = {}
        self.outside: Counter[UserLine] = Counter()  # seconds between operations, of all steps, by the user's line
        self.between = 0.0  # the same, with what torch's own Python code took
        self.inside = 0.0  # seconds of operations, of all steps
        self.doubled = Counter[UserLine]()  # seconds of operations that made float64, by line
        self._doubling = Counter[UserLine]()  # those that made it of something else

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the thread that enters it, which has to be the main one: it gets the signals."""
        before = signal.signal(signal.SIGALRM, lambda number, frame: self._look(frame))
        signal.setitimer(signal.ITIMER_REAL, TICK_SECONDS, TICK_SECONDS)
        self._stopwatch.listeners.append(self.restart)
        try:
            with self:
                yield
        finally:
            self._stopwatch.listeners.remove(self.restart)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)

    def step(self) -> None:
        """One optimizer step has ended."""
        self._step += 1

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do the operation, and take note of its time and of the tensor that it made."""
        if self._last is None or func is Tensor.backward:
            return func(*args, **(kwargs or {}))
        frame = sys._getframe(1)
        self._look(frame)
        began = time.perf_counter()
        made = func(*args, **(kwargs or {}))
        seconds = time.perf_counter() - began
        self.inside += seconds
        if isinstance(made, Tensor) and (line := calling_line(frame, through_torch=True)) is not None:
            self._note(made, args, line, seconds)
        if self._last is not None:
            self._last = time.perf_counter()
        return made

    def _note(self, made: Tensor, arguments: Any, line: UserLine, seconds: float) -> None:
        known = self._made.get(id(made))
        if known is None or known[0]() is not made:
            self._made[id(made)] = weakref.ref(made), line, self._step
        if made.dtype is torch.float64:
            self.doubled[line] += seconds  # type: ignore[assignment]  # a counter of seconds
            if not any(isinstance(one, Tensor) and one.dtype is torch.float64 for one in arguments):
                self._doubling[line] += seconds  # type: ignore[assignment]

    def doubling(self) -> UserLine | None:
        """Return the line that float64 comes from: that which makes it, else that which computes most with it."""
        return next((line for lines in (self._doubling, self.doubled) for line, _ in lines.most_common(1)), None)

    def kept(self) -> tuple[UserLine, str] | None:
        """Return the line whose tensors stay alive from step to step, and what keeps them; None: there is none."""
        alive = defaultdict[UserLine, dict[int, Tensor]](dict)  # one tensor of each step
        for reference, line, step in self._made.values():
            if (tensor := reference()) is not None and step < self._step - 1:
                alive[line][step] = tensor
        most = max(alive, key=lambda line: len(alive[line]), default=None)
        if most is None or len(alive[most]) < FEWEST_KEPT:
            return None
        return most, _container(next(iter(alive[most].values())))

    def restart(self) -> None:
        """What was done since the last look is not counted: another part of a step, or a call that others count."""
        self._last = time.perf_counter() if self._stopwatch.current == "forward" else None

    def _look(self, frame: FrameType | None) -> None:
        """The time since the last look belongs to the user's line that runs, unless torch's code was called there."""
        if self._last is None:
            return
        now = time.perf_counter()
        self.between += now - self._last
        if (line := calling_line(frame, through_torch=False)) is not None:
            self.outside[line] += now - self._last  # type: ignore[assignment]  # a counter of seconds
        self._last = now


def _container(tensor: Tensor) -> str:
    """Return the name of what holds `tensor` in a module of the user's; empty: it has none there."""
    holders = [one for one in gc.get_referrers(tensor) if isinstance(one, list | dict | set) or hasattr(one, "append")]
    for module in list(sys.modules.values()):
        if owner(getattr(module, "__file__", None) or "<none>") != "user":
            continue
        for name, value in list(vars(module).items()):
            if any(value is one for one in holders):
                return name
    return ""


def by_function(outside: Counter[UserLine]) -> dict[UserLine, float]:
    """Return the seconds of every function, by the line of it that took most."""
    functions = defaultdict[tuple[str, str], Counter[UserLine]](Counter)
    for line, seconds in outside.items():
        functions[line.file, line.function][line] = seconds
    return {lines.most_common(1)[0][0]: sum(lines.values()) for lines in functions.values()}
