"""The user's lines that make samples and batches: the seconds of each in a step that waits for them."""

from __future__ import annotations

import builtins
import io
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from autotune.machine.host import usable_cores
from autotune.profile.measuring.line_times import LineTimes, by_function
from autotune.profile.measuring.samples import MOST_LOADING_SECONDS
from autotune.profile.measuring.stopwatch import Stopwatch, replaced
from autotune.profile.measuring.user_lines import UserLine, calling_line, slow_line
from autotune.profile.records import SlowLine, Slowness
from autotune.targets.data import Epochs, Source
from autotune.targets.peek import random_state_kept, some_keys

MOST_FUNCTION_SHARE = 0.5  # of a function's time: what it is told for
CACHES = "fsspec.implementations.cache"  # of fsspec, whose own list of files is read and written again and again
AGAIN_SHARE = 0.5  # of the samples, at least, for which one file is opened: it is read again and again


class LoadedLines:
    """The time per step of the user's lines that make samples and join them into batches."""

    def __init__(self, source: Source | None, stopwatch: Stopwatch) -> None:
        self._loader = source.loader if isinstance(source, Epochs) else None
        self._stopwatch = stopwatch
        self._lines, self._is_copying = LineTimes(stopwatch, ("data",)), False
        self._lines.is_counted_elsewhere = lambda: self._is_copying
        self._opened = Counter[tuple[UserLine, str]]()
        self._copied = defaultdict[tuple[str, str], list[float]](list)  # seconds of copies, by function
        self._steps = 0.0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch what this process loads; needs the main thread, and does nothing in another."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with self._lines.watched(), ExitStack() as stack:
            for owner in (builtins, io):  # one function, which most libraries call by one of these names
                stack.enter_context(replaced(owner, "open", self._opening(owner.open)))
            stack.enter_context(replaced(torch, "tensor", self._copying(torch.tensor)))
            yield

    def stepped(self, steps: int) -> None:
        """Add `steps` to the number of steps over which readings are averaged."""
        self._steps += steps

    def result(self, samples: float, waiting: float, step: float) -> list[SlowLine]:
        """Return the user's functions that a step of so many samples waits for; `waiting` and `step` are seconds."""
        workers = self._loader.num_workers if self._loader else 0
        if workers:
            self._read_beside(samples)
        seconds, steps = self._lines.parts["data"], self._steps
        if not seconds.total or not steps:
            return []
        whole = waiting if not workers else seconds.total / steps
        parallel = max(1, min(workers, usable_cores()))
        found = []
        for line, of_all in by_function(seconds.all).items():
            own = whole * of_all / seconds.total
            gain = own if not workers else _gain(whole / parallel, own / parallel, step - waiting)
            kind, what, count = self._known(line, of_all, samples)
            found.append(slow_line(kind, line, what, count, min(gain, waiting)))
        return found

    def _known(self, line: UserLine, seconds: float, samples: float) -> tuple[Slowness, str, float]:
        """Return what the function of `line` does that takes most of its seconds, and how often a step."""
        if opened := self._reread(line, samples * self._steps):
            return "rereading", opened, samples
        copied = self._copied.get((line.file, line.function), [])
        if sum(copied) >= MOST_FUNCTION_SHARE * seconds:
            return "joining", "torch.tensor()", len(copied) / self._steps
        return "loading", line.function, 1.0

    def _copying(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def copying(*arguments: Any, **options: Any) -> Any:
            frame = sys._getframe(1)
            line = calling_line(frame) if self._stopwatch.current == "data" else None
            if line is None or not arguments or not _is_made(arguments[0]):
                return call(*arguments, **options)
            self._lines.look(frame)
            self._is_copying, began = True, time.perf_counter()
            made = call(*arguments, **options)
            self._is_copying = False
            self._copied[line.file, line.function].append(time.perf_counter() - began)
            self._lines.look(frame)  # the timer would have seen this function, which is ours
            return made

        return copying

    def _opening(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def opening(*arguments: Any, **options: Any) -> Any:
            if self._stopwatch.current == "data" and arguments and isinstance(arguments[0], str | os.PathLike):
                frame = sys._getframe(1)
                line = calling_line(frame)
                if line is not None and not frame.f_globals.get("__name__", "").startswith(CACHES):
                    self._opened[line, os.fspath(arguments[0])] += 1
            return call(*arguments, **options)

        return opening

    def _reread(self, line: UserLine, samples: float) -> str:
        """Return the name of the file that this function opens for most samples; empty: there is none."""
        counts = Counter[str]()
        for (opening, path), count in self._opened.items():
            if (opening.file, opening.function) == (line.file, line.function):
                counts[path] += count
        return next((Path(path).name for path, count in counts.most_common(1) if count >= AGAIN_SHARE * samples), "")

    def _read_beside(self, samples: float) -> None:
        """Make a batch in this process, because the training's workers are other processes."""
        assert self._loader is not None
        if not hasattr(self._loader.dataset, "__getitem__") or not self._loader.batch_size:
            return
        made, ends = list[Any](), time.perf_counter() + MOST_LOADING_SECONDS
        with random_state_kept(), self.watched():
            self._stopwatch.during("data", lambda: self._make(made, ends))()
        self._steps = len(made) / samples

    def _make(self, made: list[Any], ends: float) -> None:
        loader: Any = self._loader
        for key in some_keys(loader, loader.batch_size):
            made.append(loader.dataset[key])
            if time.perf_counter() > ends:
                return
        loader.collate_fn(made)


def _gain(loading: float, own: float, computing: float) -> float:
    """Return the seconds that a step gains without `own` of what loading a batch takes, beside so much computing."""
    return max(0.0, loading - computing) - max(0.0, loading - own - computing)


def _is_made(given: Any) -> bool:
    """Return whether it is already an array or a tensor, or a list of these."""
    if isinstance(given, list | tuple) and given:
        return _is_made(given[0])
    return isinstance(given, np.ndarray | torch.Tensor)
