"""Runs one configuration under Nsight Systems: the profile's process opens the window that the command captures.

    nsys profile --capture-range=cudaProfilerApi ... python -m autotune.child FOLDER
                                                          └ warm-up ─► cudaProfilerStart ─► 10 steps ─► Stop

For CUDA only. Not tested on a GPU.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from shutil import which

from msgspec.structs import replace

from autotune.knobs import environ
from autotune.launch.base import REQUEST
from autotune.launch.files import store
from autotune.profile.records import ProfileRequest
from autotune.study.disk import make

NSYS = "nsys"  # the program, and the folder in that of the profile
REPORT = "report"
WATCHED = "cuda,nvtx,osrt,cudnn,cublas"


def prepared(output: Path, asked: ProfileRequest) -> list[str]:
    """Write the request into `output`; return the words of the command. Raises `EnvironmentUnfit`."""
    folder = make(output / NSYS).resolve()
    store(folder, REQUEST, replace(asked, extent="captured", output=None))
    variables = [f"{name}={text}" for name, text in environ(asked.config.values).items()]
    return [
        *(["env", *variables] if variables else []),
        NSYS, "profile", f"--trace={WATCHED}", "--capture-range=cudaProfilerApi", "--capture-range-end=stop",
        "--kill=none", "--force-overwrite=true", f"--output={folder / REPORT}",
        sys.executable, "-P", "-m", "autotune.child", str(folder),
    ]  # fmt: skip


def not_run(device: str) -> str:
    """Return why the command cannot be run here, in a sentence; empty if it can."""
    if not device.startswith("cuda"):
        return f"nsys was not run: it captures between two calls of CUDA, and this trains on {device}."
    if which(NSYS) is None:
        return (
            "nsys was not run: it is not installed here. It comes with NVIDIA's Nsight Systems; run the command then."
        )
    return ""


def run(words: list[str], output: Path) -> str:
    """Run the command; return its result in a sentence."""
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    found = sorted((output / NSYS).glob(f"{REPORT}.*"))
    if not found:
        return f"nsys ended with status {ended.returncode} and left no report. It probably said why above."
    return f"{found[0]}: open it with Nsight Systems (nsys-ui)."
