"""Stops a program from leaving the measured training: by other processes, restarts, or the end of this process."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch.multiprocessing

from autotune.errors import TargetError
from autotune.targets.commands.distributed import LAUNCHER_NAMES
from autotune.targets.commands.hygiene import OUTPUT, python_path
from autotune.targets.commands.watching.main_thread import Guest

_RESTARTING = "accelerate/utils/memory.py"  # file of `find_executable_batch_size`
_SPAWNS = (
    "{} trains in processes that it starts itself. A probe watches one process, or those that torchrun and accelerate "
    "launch start. Start its ranks with one of these, or let it train in its own process, with one device."
)
_STARTS = (
    "{} starts `{}`, and that process trains. A probe watches the process that it runs, and no other. Name the command "
    "that trains: -- {}."
)
_STARTS_ITSELF = (
    "{} starts itself once more, and that process trains too. It is probably a further rank, as Lightning's ddp starts "
    "them; a probe watches one process, or the ranks of torchrun and accelerate launch. Let one of these start them, N "
    "for their number: -- torchrun --standalone --nproc-per-node N {}."
)
_RESTARTS = (
    "{} trains with auto_find_batch_size, which changes the batch size by itself after running out of memory. A probe "
    "needs a batch size that stays. Leave that option out."
)
_CLOSES = (
    "{} closes file descriptors that it did not open, through which a probe is watched. It probably calls "
    "os.closerange, as daemons do. Leave that out where it is tuned."
)

TRAINS = "_AUTOTUNE_TRAINS"  # environment variable for them: the pipe on which to report that they train
_MOST_BYTES = 2**16  # of their reports: a pipe holds no more

_STARTED = re.compile(r"(^|/)python[\d.]* (-[uB] )*(-m [\w.]+|\S+\.py)( |$)")


class ExitHooks:
    """Replacements of calls that would leave this process: instead the probe ends with the reason."""

    def __init__(self, label: str, guest: Guest) -> None:
        self._label, self._guest, self._process = label, guest, os.getpid()
        self.advice = ""  # what to do about processes that the program starts, behind the reason
        self.started = ""  # the last Python program that it started, as it was written; empty: none
        self._trained_read, self._trained_write = os.pipe()  # a pipe for processes that the program forked
        os.set_blocking(self._trained_write, False)
        self.replacements: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
            (sys.modules["torch.multiprocessing.spawn"], "start_processes", self._spawning),
            (torch.multiprocessing, "start_processes", self._spawning),
            (subprocess.Popen, "__init__", self._starting),
            (os, "_exit", self._exiting),
        )

    def refuse_restarts(self) -> None:
        """Raise `TargetError` if the caller runs inside a function that tries one batch size after the other."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename.replace(os.sep, "/").endswith(_RESTARTING):
                raise TargetError(_RESTARTS.format(self._label))
            frame = frame.f_back

    @contextmanager
    def heard(self) -> Iterator[None]:
        """End the probe if a process that the program started reports that it trains.

        A forked process has our hooks. Any other Python loads `injected/sitecustomize.py`, unless it was started
        without our variables; it reports through /proc, where that exists, by which it opens our pipe.
        """
        told = {"PYTHONPATH": python_path(), TRAINS: f"/proc/{self._process}/fd/{self._trained_write}"}
        before = {name: os.environ.get(name) for name in told}
        threading.Thread(target=self._listen, daemon=True).start()
        os.environ.update(told)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            try:
                os.close(self._trained_write)
            except OSError as error:
                raise TargetError(_CLOSES.format(self._label)) from error

    def trains(self) -> None:
        """Report that this process trains, if the program forked it."""
        if self._is_elsewhere:
            with suppress(OSError):  # the probe has ended, or the pipe is full of reports
                os.write(self._trained_write, b"\0")

    def _listen(self) -> None:
        """Wait for the report of a process that trains, with the words that started it (none if forked), and end."""
        with suppress(OSError), FileIO(self._trained_read) as trained:  # the program may close it
            if said := trained.read(_MOST_BYTES):
                self._guest.end(TargetError(self._of_a_child(said.decode("utf-8", "replace").split("\0")[1:])))

    def _of_a_child(self, words: list[str]) -> str:
        if words[:1] and Path(words[0]).resolve() == Path(sys.argv[0]).resolve() and words[1:] == sys.argv[1:]:
            return _STARTS_ITSELF.format(self._label, _typed(shlex.join(sys.argv)))
        line = _typed(shlex.join(["python", *filter(None, words)]))
        if _STARTED.match(line) is None:  # such as `python -c "from multiprocessing.spawn import ..."`
            return _SPAWNS.format(self._label) + self.advice
        return _STARTS.format(self._label, line, line)

    @property
    def _is_elsewhere(self) -> bool:
        return os.getpid() != self._process

    def _spawning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def spawn(*arguments: Any, **named: Any) -> Any:
            return original(*arguments, **named) if self._is_elsewhere else self._refuse_processes()

        return spawn

    def _starting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def start(process: Any, words: Any, *arguments: Any, **named: Any) -> Any:
            text = words if isinstance(words, str) else " ".join(map(str, words)) if isinstance(words, list) else ""
            if not self._is_elsewhere and any(Path(word).name in LAUNCHER_NAMES for word in text.split()):
                self._refuse_processes()
            if _STARTED.search(text):
                self.started = _typed(text)
            return original(process, words, *arguments, **named)

        return start

    def _refuse_processes(self) -> NoReturn:
        self._guest.leave(TargetError(_SPAWNS.format(self._label) + self.advice))

    def _exiting(self, original: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
        def leave(status: int) -> NoReturn:
            if self._is_elsewhere:
                original(status)
            self._guest.leave(SystemExit(status))

        return leave


def _typed(line: str) -> str:
    """Return a command line as a person would type it, without the probe's folder, which is removed later."""
    folder = os.environ.get(OUTPUT)
    return line.replace(folder, "OUTPUT_DIR") if folder else line
