"""What the words of a command run: a Python file or a module, in this interpreter. Imports no torch."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import TargetError

_PYTHON = re.compile(r"python(\d+(\.\d+)?)?$")
_HARMLESS_OPTIONS = ("-u", "-B")  # probes have them anyway
LAUNCHERS = (  # programs and modules that start other processes, which train
    "torchrun", "accelerate", "deepspeed", "mpirun", "srun", "torch.distributed.run", "torch.distributed.launch",
    "accelerate.commands.launch", "deepspeed.launcher.runner",
)  # fmt: skip
_SHEBANG_BYTES = 512


@dataclass(frozen=True, kw_only=True)
class Program:
    """The program of a command: a file or a module."""

    file: Path | None = None
    module: str = ""
    arguments: tuple[str, ...]

    @property
    def label(self) -> str:
        """How messages call it."""
        return self.file.name if self.file else self.module

    @property
    def root(self) -> Path:
        """The folder of the user's code, first on `sys.path`."""
        return self.file.resolve().parent if self.file else Path.cwd()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Make the process look as if it had been started for the program, until the end."""
        before = sys.argv, list(sys.path), sys.modules["__main__"]
        sys.argv = [str(self.file or self.module), *self.arguments]
        sys.path.insert(0, str(self.root))
        try:
            yield
        finally:
            sys.argv, sys.path[:], sys.modules["__main__"] = before

    def run(self) -> None:
        """Run it as `__main__`."""
        if self.file:
            runpy.run_path(str(self.file), run_name="__main__")
        else:
            runpy.run_module(self.module, run_name="__main__", alter_sys=True)


def read(words: Sequence[str]) -> Program:
    """Return the program that these words start. Raises `TargetError` for what does not run in this interpreter."""
    first, *rest = words
    if re.match(r"[A-Za-z_]\w*=", first):
        raise TargetError(
            f"The command begins with a variable, {first}. Probes inherit the variables of autotune itself. Write it "
            f"before autotune: {first} autotune search -- {' '.join(rest)}."
        )
    if _PYTHON.match(Path(first).name):
        _check_interpreter(first)
        return _of_python(first, rest)
    _refuse_launcher(first)
    found = shutil.which(first)
    if found is None:
        raise TargetError(
            f"There is no command {first}. It was probably mistyped, or belongs to another environment. Install "
            f"autotune beside it, or write the command as python FILE or python -m MODULE."
        )
    interpreter = _shebang(Path(found))
    if interpreter is None:
        raise TargetError(
            f"{first} is no Python program: {found}. A probe watches the training in the process that it starts. Name "
            f"the Python file that trains: -- python train.py."
        )
    _check_interpreter(interpreter)
    return Program(file=Path(found), arguments=tuple(rest))


def _of_python(python: str, words: Sequence[str]) -> Program:
    rest = list(words)
    while rest and rest[0] in _HARMLESS_OPTIONS:
        rest.pop(0)
    if rest[:1] == ["-m"] and rest[1:]:
        _refuse_launcher(rest[1])
        return Program(module=rest[1], arguments=tuple(rest[2:]))
    if not rest or rest[0].startswith("-"):
        raise TargetError(
            f"{' '.join([python, *words])} cannot be watched. A probe runs a file or a module in its own process. "
            f"Write it as {python} FILE or {python} -m MODULE, with other options of Python as variables."
        )
    file = Path(rest[0])
    if not file.exists():
        raise TargetError(
            f"There is no file {file}. The command is run in this folder, {Path.cwd()}. Correct the path, or go to the "
            f"folder where you type it."
        )
    return Program(file=file, arguments=tuple(rest[1:]))


def _refuse_launcher(name: str) -> None:
    if Path(name).name in LAUNCHERS:
        raise TargetError(
            f"{name} starts other processes, and they train. A command is watched in one process; several are not "
            f"supported yet. Name the script itself: -- python train.py, with its arguments."
        )


def _check_interpreter(python: str) -> None:
    """Raise `TargetError` for the path of another Python than this one; a bare `python` means this one."""
    if os.sep not in python or Path(python).parent.resolve() == Path(sys.executable).parent.resolve():
        return
    raise TargetError(
        f"The command runs {python}, and autotune runs in {sys.executable}. A probe runs the command in its own "
        f"process, with the packages of autotune. Install autotune into the environment of the command."
    )


def _shebang(file: Path) -> str | None:
    """The Python that the file names as its interpreter; None: it names none."""
    with file.open("rb") as opened:
        start = opened.read(_SHEBANG_BYTES).decode("utf-8", "replace")
    lines = start.splitlines()[:2]
    if not start.startswith("#!"):
        return None
    words = re.findall(r"[^\s'\"]+", " ".join(lines) if "/sh" in lines[0] else lines[0][2:])  # uv: sh, then exec
    return next((word for word in words if _PYTHON.match(Path(word).name)), None)
