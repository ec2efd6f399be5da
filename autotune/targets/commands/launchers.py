"""Programs that start the processes of a training, its ranks: one row for each, with the form of its command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.errors import TargetError
from autotune.targets.commands.declared import UNKNOWN, Argument, Script

PYTHON = re.compile(r"python(\d+(\.\d+)?)?$")
HARMLESS_OPTIONS = ("-u", "-B")  # of Python; probes have them anyway
_MODULE, _MACHINES = ("-m", "--module"), ("--nnodes", "--num-machines")
_ONE_MACHINE = ("1", "1:1")
# What a launcher is told to run instead of a Python file or module in a process of its own.
_ELSEWHERE = ("--no-python", "--run-path")


@dataclass(frozen=True, kw_only=True)
class DistributedLauncher:
    """One program that starts ranks. Its options may be written with `_` for `-`, as its own parser has it."""

    heads: tuple[tuple[str, ...], ...]  # the words that start it; that of Python is left out
    module: str  # that does it: `python -m MODULE` is the same program
    count: str  # the option that says how many ranks
    flags: frozenset[str]  # options without a value
    refused: Mapping[str, str] = field(default_factory=dict)  # options, and what they would need
    known: Mapping[str, Any] = field(default_factory=dict)  # options that may be knobs, with their defaults
    taker: str = ""  # what takes them up: a name that the script has to call, and not with the same keyword

    def arguments(self, script: Script) -> tuple[Argument, ...]:
        """Return the options that may be knobs of this script."""
        takes = self.taker in script.marks
        return tuple(
            Argument(names=(name, name.replace("_", "-")), default=default)
            for name, default in self.known.items()
            if default is UNKNOWN or (takes and f"{self.taker}({name.lstrip('-')})" not in script.marks)
        )


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The part of a command that starts ranks."""

    launcher: DistributedLauncher
    options: tuple[str, ...]  # its own, without that which says that a module follows
    head: int  # position of the first of them
    start: int  # position of the file or module that it starts
    is_module: bool
    ranks: int  # processes, all on this machine

    @property
    def label(self) -> str:
        """How messages call it."""
        return " ".join(self.launcher.heads[0])


LAUNCHERS = (
    # torch 2.13, `torch.distributed.run.get_args_parser`
    DistributedLauncher(
        heads=(("torchrun",),),
        module="torch.distributed.run",
        count="--nproc-per-node",
        flags=frozenset({"-m", "--module", "--no-python", "--run-path", "--standalone", "--virtual-local-rank"}),
    ),
    # accelerate 1.15, `accelerate.commands.launch.launch_command_parser`. Its --gradient_accumulation_steps is passed
    # on to DeepSpeed alone, and is no knob. A precision that the script gives to `Accelerator` wins over its own.
    DistributedLauncher(
        heads=(("accelerate", "launch"), ("accelerate-launch",)),
        module="accelerate.commands.launch",
        count="--num-processes",
        flags=frozenset({
            "-m", "--module", "-q", "--quiet", "--cpu", "--debug", "--downcast-bf16", "--dynamo-use-dynamic",
            "--dynamo-use-fullgraph", "--dynamo-use-regional-compilation", "--enable-cpu-affinity",
            "--fp8-use-autocast-during-eval", "--multi-gpu", "--no-python", "--no-tpu-cluster", "--same-network",
            "--tpu", "--tpu-cluster", "--tpu-use-sudo", "--use-deepspeed", "--use-fsdp", "--use-megatron-lm",
            "--use-parallelism-config",
        }),
        refused={
            "--use-deepspeed": "DeepSpeed", "--use-fsdp": "FSDP", "--use-megatron-lm": "Megatron-LM", "--tpu": "a TPU",
            "--mpirun-hostfile": "MPI", "--use-parallelism-config": "parallelism other than of data",
        },
        known={"--mixed_precision": "no", "--num_cpu_threads_per_process": UNKNOWN},
        taker="Accelerator",
    ),
)  # fmt: skip
# Programs and modules that start processes in ways that are not watched.
UNWATCHED = ("accelerate", "deepspeed", "mpirun", "srun", "torch.distributed.launch", "deepspeed.launcher.runner")
STARTERS = frozenset((*UNWATCHED, *(name for one in LAUNCHERS for name in (one.module, *(h[0] for h in one.heads)))))


def launch_of(words: Sequence[str]) -> Launch | None:
    """Return what of a command starts ranks; None: nothing does. Raises `TargetError` for a form not understood."""
    module_at = _module_of_python(words)
    for launcher in LAUNCHERS:
        if module_at and words[module_at] == launcher.module:
            return _read(launcher, words, module_at + 1)
        for head in launcher.heads:
            if (Path(words[0]).name, *words[1 : len(head)]) == head:
                return _read(launcher, words, len(head))
    return None


def _module_of_python(words: Sequence[str]) -> int:
    """Return the position of the module that Python is to run; 0: there is none."""
    at = 1
    while PYTHON.match(Path(words[0]).name) and words[at : at + 1] and words[at] in HARMLESS_OPTIONS:
        at += 1
    return at + 1 if PYTHON.match(Path(words[0]).name) and words[at : at + 1] == ["-m"] and words[at + 1 :] else 0


def _read(launcher: DistributedLauncher, words: Sequence[str], head: int) -> Launch:
    """Read the options from position `head` on."""
    at, count, is_module, options = head, "1", False, list[str]()
    while at < len(words) and words[at].startswith("-"):
        option, equals, value = words[at].partition("=")
        name = option.replace("_", "-")
        own = words[at : at + (1 if equals or name in launcher.flags else 2)]
        value = value or own[-1]
        _refuse(launcher, name, value)
        if name == launcher.count:
            count = value
        if name in _MODULE:
            is_module = True
        else:
            options += own
        at += len(own)
    label = " ".join(launcher.heads[0])
    if not count.isdigit() or not int(count):
        raise TargetError(
            f"{label} is given {launcher.count} {count}, which is no number. How many processes train decides what a "
            f"step is. Write the number: {launcher.count} 2."
        )
    if at >= len(words):
        raise TargetError(f"{label} has nothing to run. Name the script behind its options: {label} train.py.")
    return Launch(
        launcher=launcher, options=tuple(options), head=head, start=at, is_module=is_module, ranks=int(count)
    )  # fmt: skip


def _refuse(launcher: DistributedLauncher, name: str, value: str) -> None:
    label = " ".join(launcher.heads[0])
    if name in _ELSEWHERE:
        raise TargetError(
            f"{label} {name} does not start a Python file in a process of its own. A probe watches Python programs. "
            f"Leave it out, and name the file that trains: {label} train.py."
        )
    if name in _MACHINES and value not in _ONE_MACHINE:
        raise TargetError(
            f"{label} {name} {value} trains on several machines. A probe measures this one. Tune it with the ranks of "
            f"one machine: leave {name} out."
        )
    if name in launcher.refused:
        raise TargetError(
            f"{label} {name} trains with {launcher.refused[name]}, which is not supported yet. A probe measures data-"
            f"parallel ranks on this machine. Leave it out to tune the rest."
        )
