"""Finds the Python program in the words after `--`, and refuses words that only a shell could run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from autotune.errors import TargetError
from autotune.targets.commands.command import NO_COMMAND
from autotune.targets.commands.program import Program, read

OPERATORS = ("&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1")
SHELLS = ("sh", "bash", "zsh", "dash", "fish", "ksh", "csh", "tcsh", "pwsh")
# Programs that have an environment of their own and train in a child process.
WRAPPERS = ("uv", "poetry", "conda", "mamba", "micromamba", "pipenv", "hatch", "pixi", "rye", "env", "nohup", "nice",
            "time", "numactl", "taskset", "sudo", "docker", "ssh")  # fmt: skip


def program_of(words: Sequence[str]) -> Program:
    """Return the Python program that a command runs. Raises `TargetError` if there is none or more than one."""
    if not words:
        raise TargetError(NO_COMMAND)
    first = Path(words[0]).name
    used = next((word for word in words if word in OPERATORS or word.endswith(";")), None)
    if used:
        raise TargetError(
            f"The command has {used!r} in it, which belongs to a shell. It is run without one. Give the one line "
            f"that starts the training, and do the rest before."
        )
    if len(words) == 1 and " " in words[0] and shutil.which(words[0]) is None:
        raise TargetError(
            f"{words[0]!r} came as a single word. It was probably put into quotes. Type it as in a shell: -- {words[0]}"
        )
    if first in WRAPPERS:
        raise TargetError(
            f"{first} starts the training in another process. A probe watches the Python program in its own. Activate "
            f"the environment, and give the line without {first}: -- python train.py."
        )
    if first in SHELLS or first.endswith((".sh", ".bash")):
        raise TargetError(
            f"{' '.join(words[:2])} is a shell script, and not Python. A probe watches one Python program. Give the "
            f"line in it that starts the training: -- python train.py --batch-size 64."
        )
    if first.endswith(".py") and shutil.which(words[0]) is None:
        raise TargetError(
            f"{words[0]} is a file that cannot be run by itself. The program that runs it was probably left out. "
            f"Write -- python {' '.join(words)}."
        )
    return read(words)


def script_of(program: Program) -> Path | None:
    """Return the file of a program, for reading; None for an installed module, which only an import would find."""
    place = program.file or Path(*program.module.split("."))
    candidates = (place, place.with_suffix(".py"), place / "__main__.py")
    return next((one for one in candidates if one.is_file()), None)
