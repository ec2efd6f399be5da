"""Finds the line of the user's code from which a function is called, fast enough for thousands of calls."""

from __future__ import annotations

import functools
import inspect
import linecache
import sys
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

import torch

import autotune
from autotune.profile.records import SlowLine, Slowness
from autotune.targets.tracebacks import is_users, place_of

_OURS, _TORCH = (str(Path(str(package.__file__)).resolve().parent) for package in (autotune, torch))
_SHARDING = f"{_TORCH}/distributed/fsdp/"
_NO_OPTIMIZERS = ("torch.optim.lr_scheduler", "torch.optim.swa_utils")


class UserLine(NamedTuple):
    """One line of the user's code, with its file and function."""

    file: str
    function: str  # "Net.forward"
    number: int

    @classmethod
    def of(cls, code: CodeType, number: int) -> UserLine:
        """Return the line of that number in `code`; what is defined within a function counts as the function."""
        return cls(code.co_filename, code.co_qualname.partition(".<locals>")[0], number)

    @property
    def place(self) -> str:
        """`model.py:31 in loss`, relative to the working folder where the file lies in it."""
        return place_of(self.file, self.number, self.function, Path.cwd())

    @property
    def text(self) -> str:
        """The source of the line, without indentation; empty: its file cannot be read."""
        return linecache.getline(self.file, self.number).strip()


def slow_line(
    kind: Slowness, line: UserLine | None, what: str, count: float, seconds: float, ratio: float = 0.0
) -> SlowLine:
    """Return the slow line, with the place and the source of the user's line; None: no line of the user's."""
    place, code = (line.place, line.text) if line else ("", "")
    return SlowLine(kind=kind, place=place, code=code, what=what, count=count, seconds=seconds, ratio=ratio)


@functools.cache
def owner(file: str) -> str:
    """Return whose code is in a file: `user`, `ours`, `torch`, `sharding` (of torch, of weights) or `other`."""
    place = str(Path(file).resolve()) if not file.startswith("<") else file
    if place.startswith(_OURS):
        return "ours"
    if place.startswith(_TORCH):
        return "sharding" if place.startswith(_SHARDING) else "torch"
    return "user" if is_users(Path(file)) else "other"


def calling_line(frame: FrameType | None) -> UserLine | None:
    """Return the innermost of the user's lines that `frame` was called from; None: autotune called it.

    None also for what `fully_shard` does around the modules that the line calls.
    """
    return nearest_line(frame)[0]


def nearest_line(frame: FrameType | None) -> tuple[UserLine | None, bool]:
    """Return the innermost of the user's lines that `frame` was called from, and whether torch's code is between."""
    is_through_torch = False
    while frame is not None:
        match owner(frame.f_code.co_filename):
            case "user":
                return UserLine.of(frame.f_code, line_number(frame)), is_through_torch
            case "ours" | "sharding":  # which the user's line did not ask for: it calls a module
                return None, is_through_torch
            case "torch":
                is_through_torch = True
        frame = frame.f_back
    return None, is_through_torch


def driving_line(frame: FrameType | None) -> UserLine | None:
    """Return the line of the user's that called a library, such as a Trainer, which takes the step that `frame` is in.

    None: the user's code takes the step itself.
    """
    is_librarys = False
    while frame is not None and (whose := owner(frame.f_code.co_filename)) != "user":
        is_librarys |= whose == "other" and frame.f_globals.get("__name__") not in sys.stdlib_module_names
        frame = frame.f_back
    return UserLine.of(frame.f_code, line_number(frame)) if frame is not None and is_librarys else None


def is_optimizers(frame: FrameType) -> bool:
    """Return whether a frame runs code of torch's optimizers, not of other code in `torch.optim`."""
    module = str(frame.f_globals.get("__name__"))
    return module.startswith("torch.optim.") and module not in _NO_OPTIMIZERS


def line_number(frame: FrameType) -> int:
    """Return the line that a frame is in. Where a `with` ends, Python adds code without a line: the one before."""
    if frame.f_lineno is not None:
        return frame.f_lineno
    code = frame.f_code
    numbers = [number for begin, _, number in code.co_lines() if begin <= frame.f_lasti and number is not None]
    return numbers[-1] if numbers else code.co_firstlineno


def user_modules() -> list[ModuleType]:
    """Return all imported modules that are the user's own."""
    return [one for one in list(sys.modules.values()) if owner(getattr(one, "__file__", None) or "<none>") == "user"]


def known_as(call: Any) -> list[tuple[ModuleType, str]]:
    """Return the names that the user's modules have for what torch or Python defines: it was imported by name."""
    return [(module, known) for module in user_modules() for known, value in vars(module).items() if value is call]


def line_of(function: Any) -> UserLine | None:
    """Return the line that a function of the user's begins with; None: it is not theirs."""
    while isinstance(function, functools.partial):
        function = function.func
    is_object = not inspect.isfunction(function) and not inspect.ismethod(function)
    code = getattr(inspect.unwrap(type(function).__call__ if is_object else function), "__code__", None)
    return UserLine.of(code, code.co_firstlineno) if code and owner(code.co_filename) == "user" else None
