"""The calls of the user's code that make the host wait, copy or clean up, each with its line and its time.

Functions of torch and of the collector are replaced while steps are watched. What was imported by name (`from torch
import tensor`) is not seen.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autotune.profile.records import SlowLine, Slowness
from autotune.profile.stopwatch import Stopwatch, replaced
from autotune.profile.user_lines import UserLine, calling_line
from autotune.targets.own_step import StepOptimizer

_READS = ("item", "tolist", "cpu", "numpy", "__float__", "__int__", "__bool__", "__index__")
_SHOWN = {"__float__": "float(tensor)", "__int__": "int(tensor)", "__bool__": "bool(tensor)", "__index__": "an index"}
CALLS: tuple[tuple[Any, str, Slowness, str], ...] = (
    *((Tensor, name, "host read", _SHOWN.get(name, f".{name}()")) for name in _READS),
    *((torch, name, "host tensor", f"torch.{name}()") for name in ("tensor", "as_tensor", "from_numpy")),
    (gc, "collect", "collector", "gc.collect()"),
    (torch.cuda, "empty_cache", "cache", "torch.cuda.empty_cache()"),
    (torch.cuda, "synchronize", "cache", "torch.cuda.synchronize()"),
    (torch, "save", "saving", "torch.save()"),
    (StepOptimizer, "zero_grad", "zeroing", "zero_grad(set_to_none=False)"),
    (torch.nn.Module, "zero_grad", "zeroing", "zero_grad(set_to_none=False)"),
)
LONG_SECONDS = 0.001  # of making a list, from which on freeing it is measured, too


@dataclass
class _Seen:
    kind: Slowness
    what: str
    count: int = 0
    seconds: float = 0.0


class Calls:
    """What was called, by line."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch
        self._seen: dict[tuple[UserLine, str], _Seen] = {}
        self._is_inside = False
        self.sets_to_none = False  # whatever the user asked zero_grad for
        self.after: Callable[[], None] = lambda: None  # done at the end of each call

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch until the end."""
        with ExitStack() as stack:
            for owner, name, kind, what in CALLS:
                stack.enter_context(replaced(owner, name, self._watching(getattr(owner, name), kind, what)))
            yield

    def result(self, steps: int) -> list[SlowLine]:
        """Return what was called in so many steps."""
        return [
            SlowLine(
                kind=one.kind, place=line.place, code=line.text, what=one.what, count=one.count / steps,
                seconds=one.seconds / steps,
            )
            for (line, _), one in self._seen.items()
        ]  # fmt: skip

    def _watching(self, call: Callable[..., Any], kind: Slowness, what: str) -> Callable[..., Any]:
        def watching(*arguments: Any, **options: Any) -> Any:
            if kind == "zeroing":
                if _sets_to_none(arguments, options):
                    return call(*arguments, **options)
                if self.sets_to_none:
                    return call(arguments[0])
            # Samples are made of arrays and read from tensors: what that takes is the time of loading.
            if self._is_inside or self._stopwatch.current == "data":
                return call(*arguments, **options)
            line = calling_line(sys._getframe(1), through_torch=True)
            if line is None:
                return call(*arguments, **options)
            self._is_inside, began = True, time.perf_counter()
            try:
                return call(*arguments, **options)
            finally:
                seconds = time.perf_counter() - began
                if call.__name__ == "tolist" and seconds > LONG_SECONDS:
                    seconds += _freeing(call(*arguments, **options))
                self._is_inside = False
                seen = self._seen.setdefault((line, what), _Seen(kind, what))
                seen.count, seen.seconds = seen.count + 1, seen.seconds + seconds
                self.after()

        return watching


def _freeing(made: list[Any]) -> float:
    """Return the seconds that it takes to free a large list: as many again as to make it, and for the same line."""
    held, began = [made], time.perf_counter()
    del made
    held.clear()
    return time.perf_counter() - began


def _sets_to_none(arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    return bool(options["set_to_none"] if "set_to_none" in options else arguments[1] if len(arguments) > 1 else True)
