"""The hygiene of a probe of a command: no trackers, no telemetry, no output in the usual folder. Imports no torch."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.core.requests import Request
from autotune.machine.nvml import VISIBLE_DEVICES, gpus
from autotune.targets.commands.command import is_command

INJECTED = str(Path(__file__).with_name("injected"))  # loaded first by every Python process that is started
OUTPUT = "_AUTOTUNE_OUTPUT"  # environment variable: the folder for what the command writes
OUTPUT_FOLDER = "output"  # in a probe's folder, removed after the probe
RANKS_FOLDER = "ranks"  # the same, for the reports of a distributed launcher's ranks
QUIET = {  # nothing is sent to any service, whatever the user's settings say
    "WANDB_MODE": "disabled",
    "WANDB_SILENT": "true",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "SWANLAB_MODE": "disabled",
    "CLEARML_OFFLINE_MODE": "1",
    "DISABLE_MLFLOW_INTEGRATION": "TRUE",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "DO_NOT_TRACK": "1",
    "AXOLOTL_DO_NOT_TRACK": "1",
}


def environ(request: Request[Any]) -> dict[str, str]:
    """Return the variables of a process that is to run a command; none for other targets."""
    if not is_command(request.target or ""):
        return {}
    return QUIET | ({VISIBLE_DEVICES: ""} if request.device == "cpu" else {})


def before_imports(request: Request[Any], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process's `environment` that it needs before its first import.

    A probe on the CPU hides GPUs, which an inspection, whose device is not known yet, does not. Without an NVIDIA GPU
    no library finds one while it is imported, so that both may fork from one process that has imported the libraries.
    """
    is_late = VISIBLE_DEVICES in environ(request) and VISIBLE_DEVICES not in os.environ and not gpus()
    return {name: text for name, text in environment.items() if not (is_late and name == VISIBLE_DEVICES)}


def python_path() -> str:
    """Return PYTHONPATH, beginning with the folder of `injected/sitecustomize.py`, which every Python loads first."""
    return os.pathsep.join(filter(None, (INJECTED, os.environ.get("PYTHONPATH"))))


def contain(folder: Path) -> None:
    """Send the output of this process's command into `folder`, as far as variables and settings allow."""
    os.environ[OUTPUT] = str(folder / OUTPUT_FOLDER)
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder / OUTPUT_FOLDER}/mlflow.db"


def output_folder() -> Path:
    """Return the folder for the command's output, which is made if it does not exist."""
    folder = Path(os.environ.get(OUTPUT) or tempfile.mkdtemp(prefix="autotune-"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
