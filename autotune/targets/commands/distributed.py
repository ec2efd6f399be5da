"""Programs that start the processes of a training, its ranks: one row for each, with the form of its command line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.errors import TargetError
from autotune.machine.interference import LEADER
from autotune.targets.commands.script.declared_arguments import UNKNOWN, Argument, Script

PYTHON = re.compile(r"python(\d+(\.\d+)?)?$")
HARMLESS_OPTIONS = ("-u", "-B")  # of Python; probes have them anyway
_MODULE, _MACHINES = ("-m", "--module"), ("--nnodes", "--num-machines")
_ONE_MACHINE = ("1", "1:1")
# Options that make a distributed launcher run something else than a Python file or module in its own process.
_ELSEWHERE = ("--no-python", "--run-path")


@dataclass(frozen=True, kw_only=True)
class DistributedLauncher:
    """One program that starts ranks. Its options may be written with `_` for `-`, as its own parser allows."""

    names: tuple[tuple[str, ...], ...]  # the words that start it; that of Python is left out
    module: str  # `python -m MODULE` is the same program
    ranks_option: str  # the option that says how many ranks
    flags: frozenset[str]  # options without a value
    refused: Mapping[str, str] = field(default_factory=dict)  # options, and what they would need
    knob_options: Mapping[str, Any] = field(default_factory=dict)  # options that may be knobs, with their defaults
    script_call: str = ""  # the call that uses them: the script must make it, and not pass the same keyword

    @property
    def label(self) -> str:
        """The name of the program in messages."""
        return " ".join(self.names[0])

    def arguments(self, script: Script) -> tuple[Argument, ...]:
        """Return the options that may be knobs of this script."""
        takes = self.script_call in script.marks
        return tuple(
            Argument(names=(name, name.replace("_", "-")), default=default)
            for name, default in self.knob_options.items()
            if default is UNKNOWN or (takes and f"{self.script_call}({name.lstrip('-')})" not in script.marks)
        )


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The part of a command that starts ranks."""

    distributed: DistributedLauncher
    options: tuple[str, ...]  # its own options, without the one that says that a module follows
    options_at: int  # position of the first of them
    script_at: int  # position of the file or module that it starts
    is_module: bool
    ranks: int  # processes, all on this machine

    @property
    def label(self) -> str:
        """The name of the program in messages."""
        return self.distributed.label


LAUNCHERS = (
    # torch 2.13, `torch.distributed.run.get_args_parser`
    DistributedLauncher(
        names=(("torchrun",),),
        module="torch.distributed.run",
        ranks_option="--nproc-per-node",
        flags=frozenset({"-m", "--module", "--no-python", "--run-path", "--standalone", "--virtual-local-rank"}),
    ),
    # accelerate 1.15, `accelerate.commands.launch.launch_command_parser`. Its --gradient_accumulation_steps is passed
    # on to DeepSpeed alone, and is no knob. A precision that the script gives to `Accelerator` wins over its own.
    # --ipex and --use-xpu are those of 0.34.
    DistributedLauncher(
        names=(("accelerate", "launch"), ("accelerate-launch",)),
        module="accelerate.commands.launch",
        ranks_option="--num-processes",
        flags=frozenset({
            "-m", "--module", "-q", "--quiet", "--cpu", "--debug", "--downcast-bf16", "--dynamo-use-dynamic",
            "--dynamo-use-fullgraph", "--dynamo-use-regional-compilation", "--enable-cpu-affinity",
            "--fp8-use-autocast-during-eval", "--ipex", "--multi-gpu", "--no-python", "--no-tpu-cluster",
            "--same-network", "--tpu", "--tpu-cluster", "--tpu-use-sudo", "--use-deepspeed", "--use-fsdp",
            "--use-megatron-lm", "--use-parallelism-config", "--use-xpu",
        }),
        refused={
            "--use-deepspeed": "DeepSpeed", "--use-fsdp": "FSDP", "--use-megatron-lm": "Megatron-LM", "--tpu": "a TPU",
            "--mpirun-hostfile": "MPI", "--use-parallelism-config": "parallelism other than of data",
        },
        knob_options={"--mixed_precision": "no", "--num_cpu_threads_per_process": UNKNOWN},
        script_call="Accelerator",
    ),
)  # fmt: skip
# Programs and modules that start processes in ways that are not watched.
UNSUPPORTED_LAUNCHERS = (
    "accelerate", "deepspeed", "mpirun", "srun", "torch.distributed.launch", "deepspeed.launcher.runner",
)  # fmt: skip
LAUNCHER_NAMES = frozenset((
    *UNSUPPORTED_LAUNCHERS, *(name for one in LAUNCHERS for name in (one.module, *(words[0] for words in one.names)))
))  # fmt: skip


# Lines that torchrun itself prints (torch 2.13): log lines, and a word on threads between lines of asterisks.
SAID_BY_LAUNCHERS = re.compile(
    r"^(?:[WEI]\d{4} .*torch/distributed/.*|\*{20,}|Setting OMP_NUM_THREADS environment variable .*)\n?", re.MULTILINE
)


def world_size() -> int:
    """Return how many processes train together, if this one is a rank of a watched launch; else 1."""
    return int(os.environ.get("WORLD_SIZE") or 1) if LEADER in os.environ else 1


def device_of_rank(device: str) -> str:
    """Return `device`; in a rank of a watched launch that is to use CUDA the GPU of its LOCAL_RANK.

    Launchers count the ranks of a machine from 0, and scripts choose their GPU by that number (torch 2.13,
    `torch.distributed.run`).
    """
    is_cuda = device.partition(":")[0] == "cuda"
    return f"cuda:{os.environ['LOCAL_RANK']}" if is_cuda and world_size() > 1 else device


def launch_of(words: Sequence[str]) -> Launch | None:
    """Return the part of a command that starts ranks; None: none. Raises `TargetError` for an unknown form."""
    module_at = _module_of_python(words)
    for distributed in LAUNCHERS:
        if module_at and words[module_at] == distributed.module:
            return _read(distributed, words, module_at + 1)
        for name in distributed.names:
            if (Path(words[0]).name, *words[1 : len(name)]) == name:
                return _read(distributed, words, len(name))
    return None


def _module_of_python(words: Sequence[str]) -> int:
    """Return the position of the module that Python runs by `-m`; 0: there is none."""
    at = 1
    while PYTHON.match(Path(words[0]).name) and words[at : at + 1] and words[at] in HARMLESS_OPTIONS:
        at += 1
    return at + 1 if PYTHON.match(Path(words[0]).name) and words[at : at + 1] == ["-m"] and words[at + 1 :] else 0


def _read(distributed: DistributedLauncher, words: Sequence[str], options_at: int) -> Launch:
    at, count, is_module, options = options_at, "1", False, list[str]()
    while at < len(words) and words[at].startswith("-"):
        option, equals, value = words[at].partition("=")
        name = option.replace("_", "-")
        own = words[at : at + (1 if equals or name in distributed.flags else 2)]
        value = value or own[-1]
        _refuse(distributed, name, value)
        if name == distributed.ranks_option:
            count = value
        if name in _MODULE:
            is_module = True
        else:
            options += own
        at += len(own)
    label = distributed.label
    if not count.isdigit() or not int(count):
        raise TargetError(
            f"{label} is given {distributed.ranks_option} {count}, which is no number. How many processes train "
            f"decides what a step is. Write the number: {distributed.ranks_option} 2."
        )
    if at >= len(words):
        raise TargetError(f"{label} has nothing to run. Name the script behind its options: {label} train.py.")
    return Launch(
        distributed=distributed, options=tuple(options), options_at=options_at, script_at=at, is_module=is_module,
        ranks=int(count),
    )  # fmt: skip


def _refuse(distributed: DistributedLauncher, name: str, value: str) -> None:
    label = distributed.label
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
    if name in distributed.refused:
        raise TargetError(
            f"{label} {name} trains with {distributed.refused[name]}, which is not supported yet. A probe measures "
            f"data-parallel ranks on this machine. Leave it out to tune the rest."
        )
