"""Runs a piece of Python on real gloo ranks, each a process of its own, and returns what each of them told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from autotune.targets.ranks.world import RANKS_FOLDER_VARIABLE

PATIENCE_SECONDS = 90.0  # of a machine that others use, too
HEAD = """
import faulthandler, json, sys, torch
faulthandler.dump_traceback_later(WAIT, exit=True)  # ranks that wait for one another say where
from pathlib import Path
from torch import nn
from autotune.child.run import seed_all
from autotune.errors import TargetError
from autotune.targets.ranks import world
from tests.targets_support import inspect, start, watch
RANK, SIZE = world.world().rank, world.world().size
HERE = Path(f"rank{RANK}")  # for the target's file
seed_all(0)
def tell(**values): print("TOLD", json.dumps(values), flush=True)
"""
LEAVE = """
import os
sys.stdout.flush()
os._exit(0)  # as a probe ends: what gloo takes down may wait for the others
"""


def on_ranks(folder: Path, code: str, size: int = 2, **variables: str) -> list[dict[str, Any]]:
    """Run `code` on `size` ranks and return, by rank, all that its calls of `tell(name=value)` said.

    Raises `AssertionError` with what the ranks wrote if one fails, or if they wait for one another: then their stacks.
    """
    script, store = folder / "ranks.py", folder / f"ranks-{len(list(folder.iterdir()))}"
    script.write_text(HEAD.replace("WAIT", str(PATIENCE_SECONDS)) + code + LEAVE)
    store.mkdir()
    common = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent.parent), **variables}
    if size > 1:
        common |= {RANKS_FOLDER_VARIABLE: str(store), "WORLD_SIZE": str(size)}
    logs = [store / f"{rank}.log" for rank in range(size)]  # files: one rank's full pipe would stop all
    words, processes = [sys.executable, "-W", "ignore", str(script)], []
    for rank, log in enumerate(logs):
        own = {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        with log.open("w") as file:
            processes.append(subprocess.Popen(words, cwd=folder, env=own, stdout=file, stderr=subprocess.STDOUT))
    try:
        for process in processes:
            process.wait(2 * PATIENCE_SECONDS)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    written = [log.read_text() for log in logs]
    assert not any(process.returncode for process in processes), "\n---\n".join(written)
    return [_told(text) for text in written]


def _told(text: str) -> dict[str, Any]:
    lines = [line.removeprefix("TOLD ") for line in text.splitlines() if line.startswith("TOLD ")]
    return {name: value for line in lines for name, value in json.loads(line).items()}
