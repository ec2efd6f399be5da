"""The program that a command runs: a Python file or a module, in this interpreter. Imports no torch."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.core.records import Config
from autotune.core.requests import Request
from autotune.errors import TargetError
from autotune.knobs import defaults
from autotune.targets.commands.command import Command, is_command
from autotune.targets.commands.distributed import HARMLESS_OPTIONS, PYTHON, UNSUPPORTED_LAUNCHERS, Launch, launch_of
from autotune.targets.commands.hygiene import output_folder

_SHEBANG_BYTES = 512


@dataclass(frozen=True, kw_only=True)
class Program:
    """The program of a command: a file or a module."""

    file: Path | None = None
    module: str = ""
    arguments: tuple[str, ...]
    launch: Launch | None = None  # the launch that starts it in processes of its own; None: there is none

    @property
    def label(self) -> str:
        """The name of the program in messages."""
        return self.file.name if self.file else self.module

    @property
    def root(self) -> Path:
        """The folder of the user's code, first on `sys.path`."""
        return self.file.resolve().parent if self.file else Path.cwd()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Set `sys.argv` and `sys.path` as if the process had been started for the program, until the end."""
        before = sys.argv, list(sys.path), sys.modules["__main__"]
        sys.argv = [str(self.file or self.module), *self.arguments]
        sys.path.insert(0, str(self.root))
        try:
            yield
        finally:
            sys.argv, sys.path[:], sys.modules["__main__"] = before

    def run(self) -> None:
        """Run the program as `__main__`. Raises what it raises, `SystemExit` too."""
        if self.file:
            runpy.run_path(str(self.file), run_name="__main__")
        else:
            runpy.run_module(self.module, run_name="__main__", alter_sys=True)


def read(words: Sequence[str]) -> Program:
    """Return the program that these words start. Raises `TargetError` for one that this interpreter cannot run."""
    first, *rest = words
    if re.match(r"[A-Za-z_]\w*=", first):
        raise TargetError(
            f"The command begins with a variable, {first}. Probes inherit the variables of autotune itself. Write it "
            f"before autotune: {first} autotune search -- {' '.join(rest)}."
        )
    if launch := launch_of(words):
        _check_installed(first)
        started = ["-m"] * launch.is_module + list(words[launch.script_at :])
        return replace(_of_python("python", started), launch=launch)
    if PYTHON.match(Path(first).name):
        _check_interpreter(first)
        return _of_python(first, rest)
    _refuse_unsupported(first)
    return Program(file=_check_installed(first), arguments=tuple(rest))


def starts_ranks(target: str) -> bool:
    """Return whether a command begins with a distributed launcher; False for one that cannot be read."""
    try:
        return is_command(target) and launch_of(Command.parse(target).present()) is not None
    except TargetError:  # reported by the process that is going to run it
        return False


def of_ranks(request: Request[Any]) -> bool:
    """Return whether several processes train for that request: its own ranks, or those of a distributed launcher."""
    target = request.target or ""
    return starts_ranks(target) if is_command(target) else request.ranks > 1


def configured(command: Command, config: Config | None) -> Program:
    """Return the program of a command with `config` filled in (None: as it is today). Raises `TargetError`."""
    values = defaults() | command.baseline | ({} if config is None else config.values)
    try:
        words = command.filled(values, output_folder())
    except ValueError as error:
        raise TargetError(f"{error}. A placeholder has no word for that value. Write one that has.") from error
    return read(words)


def _check_installed(first: str) -> Path:
    """Return the path of the command. Raises `TargetError` if it does not exist or belongs to another interpreter."""
    if PYTHON.match(Path(first).name):
        _check_interpreter(first)
        return Path(first)
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
    return Path(found)


def _of_python(python: str, words: Sequence[str]) -> Program:
    rest = list(words)
    while rest and rest[0] in HARMLESS_OPTIONS:
        rest.pop(0)
    if rest[:1] == ["-m"] and rest[1:]:
        _refuse_unsupported(rest[1])
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


def _refuse_unsupported(name: str) -> None:
    if Path(name).name in UNSUPPORTED_LAUNCHERS:
        raise TargetError(
            f"{name} starts other processes in a way that is not watched. A probe watches one process, or those of "
            f"torchrun and accelerate launch. Write -- torchrun --nproc-per-node 2 train.py, or -- python train.py."
        )


def _check_interpreter(python: str) -> None:
    """Raise `TargetError` for a Python of another path or version; a bare `python` means this one."""
    version = re.search(r"3\.(\d+)$", python)
    is_ours = os.sep not in python or Path(python).parent.resolve() == Path(sys.executable).parent.resolve()
    if is_ours and (version is None or int(version[1]) == sys.version_info.minor):
        return
    raise TargetError(
        f"The command runs {python}, and autotune runs in {sys.executable}. A probe runs the command in its own "
        f"process, with the packages of autotune. Install autotune into the environment of the command."
    )


def _shebang(file: Path) -> str | None:
    """Return the Python that the file's first line names as its interpreter; None: it names none."""
    with file.open("rb") as opened:
        start = opened.read(_SHEBANG_BYTES).decode("utf-8", "replace")
    lines = start.splitlines()[:2]
    if not start.startswith("#!"):
        return None
    words = re.findall(r"[^\s'\"]+", " ".join(lines) if "/sh" in lines[0] else lines[0][2:])  # uv: sh, then exec
    return next((word for word in words if PYTHON.match(Path(word).name)), None)
