"""The ranks that a search asks for: how many processes train together, on which device, and which GPU each one has.

The number is known on every machine, except for `--devices all`; the GPUs only on the machine that trains.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.errors import UsageError
from autotune.machine.nvml import VISIBLE_DEVICES, Gpu, gpus
from autotune.preparation.settings import ALL_DEVICES, Settings
from autotune.targets.commands.command import is_command
from autotune.targets.commands.program import starts_ranks
from autotune.units import counted


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """The settings of a search that concern ranks."""

    count: int = 1
    device: str | None = None  # that each of them trains on; None: the accelerator, else the CPU


def asked_ranks(settings: Settings, gpus: Callable[[], Sequence[Gpu]] = gpus) -> Ranks:
    """Return the ranks that `--ranks` or `--devices` ask for; one if neither is given. Raises `UsageError`.

    `gpus` returns the GPUs of this machine, which `--devices all` counts.
    """
    if settings.ranks is None and settings.devices is None:
        _check_one_device(settings)
        return Ranks(device=settings.device)
    if is_command(settings.target):
        option = "--devices" if settings.ranks is None else "--ranks"
        raise UsageError(
            f"{option} starts the ranks of a file of functions, and the target is a command. A command has the ranks "
            f"that its own launcher starts. Leave {option} out, and write them there: -- torchrun --nproc-per-node 2 "
            f"train.py."
        )
    if settings.ranks is not None and settings.devices is not None:
        raise UsageError(
            f"--ranks {settings.ranks} trains on the CPU and --devices {settings.devices} on GPUs. One of them was "
            f"probably left over from an earlier line. Leave it out."
        )
    return _on_host(settings) if settings.devices is None else _on_gpus(settings, settings.devices, gpus)


def _check_one_device(settings: Settings) -> None:
    if re.fullmatch(r"\w+:0*[1-9]\d*", settings.device or "") and starts_ranks(settings.target):
        raise UsageError(
            f"--device {settings.device} names one device, and a launcher gives each rank that of its number, from 0. "
            f"The option was probably left over from a search of one process. Leave it out, and choose GPUs by "
            f"{VISIBLE_DEVICES} before autotune."
        )


def _on_host(settings: Settings) -> Ranks:
    if settings.device not in (None, "cpu"):
        raise UsageError(
            f"--ranks {settings.ranks} starts processes on the CPU, and --device says {settings.device}. Ranks on GPUs "
            f"have one GPU each. Write --devices {settings.ranks} for that many GPUs, or --device cpu."
        )
    return Ranks(count=settings.ranks or 1, device="cpu")


def _on_gpus(settings: Settings, text: str, gpus: Callable[[], Sequence[Gpu]]) -> Ranks:
    if settings.device not in (None, "cuda"):
        raise UsageError(
            f"--devices {text} starts one process for each CUDA device, and --device says {settings.device}. One of "
            f"them was probably left over from an earlier line. Leave --device out."
        )
    if text == ALL_DEVICES:
        return Ranks(count=len(_gpus_of_ranks(text, gpus)), device="cuda")
    return Ranks(count=int(text) if is_number(text) else len(text.split(",")), device="cuda")


def is_number(devices: str) -> bool:
    """Return whether `--devices` is a number of GPUs, and not a list."""
    return devices.isdigit()


def rank_environ(settings: Settings, gpus: Callable[[], Sequence[Gpu]] = gpus) -> dict[str, str]:
    """Return the variables by which the ranks on this machine get the GPUs asked for. Raises `UsageError`."""
    asked_ranks(settings, gpus)
    if settings.devices is None:
        return {}
    return {VISIBLE_DEVICES: ",".join(_gpus_of_ranks(settings.devices, gpus))}


def _gpus_of_ranks(text: str, gpus: Callable[[], Sequence[Gpu]]) -> list[str]:
    """Return the GPUs of this machine that `--devices` means, in the order of ranks. Raises `UsageError`."""
    visible = _visible_identifiers(gpus)
    if not visible:
        raise UsageError(
            f"--devices {text} asks for GPUs, and there is none to be seen here. This machine has none, or its driver "
            f"or {VISIBLE_DEVICES} hides them. `autotune doctor` says what there is; on the CPU use --ranks 2."
        )
    return _chosen(text, visible)


def _visible_identifiers(gpus: Callable[[], Sequence[Gpu]]) -> list[str]:
    """Return the GPUs that processes may use: the words of `CUDA_VISIBLE_DEVICES` if set, else all UUIDs."""
    said = os.environ.get(VISIBLE_DEVICES)
    if said is not None:
        return [one.strip() for one in said.split(",") if one.strip() not in ("", "-1")]
    return [one.uuid or str(one.index) for one in gpus()]


def _chosen(text: str, visible: Sequence[str]) -> list[str]:
    """Return the GPUs that `all`, a number of them, or a list of positions mean."""
    if text == ALL_DEVICES:
        return list(visible)
    if is_number(text):
        if int(text) > len(visible):
            raise _too_few(text, visible)
        return list(visible[: int(text)])
    positions = [int(one) for one in text.split(",")]
    if max(positions) >= len(visible):
        raise _too_few(text, visible)
    return [visible[one] for one in positions]


def _too_few(text: str, visible: Sequence[str]) -> UsageError:
    return UsageError(
        f"--devices {text} asks for more than there is: {counted(len(visible), 'GPU')} can be seen here, counted from "
        f"0. {VISIBLE_DEVICES} may hide others. Ask for fewer, or --devices {ALL_DEVICES}."
    )
