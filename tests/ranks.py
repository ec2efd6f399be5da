"""Runs a piece of Python on real gloo ranks, each a process of its own, and returns what each of them told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from autotune.targets.world import RANKS_FOLDER

PATIENCE_SECONDS = 120.0  # of a machine that others use, too
HEAD = """
import json, sys, torch
from pathlib import Path
from torch import nn
from autotune.child.run import seed_all
from autotune.errors import TargetError
from autotune.targets import world as ranks
from tests.targets_support import inspect, start, watch
RANK, SIZE = ranks.world().rank, ranks.world().size
HERE = Path(f"rank{RANK}")  # for the target's file
seed_all(0)
def tell(**values): print("TOLD", json.dumps(values), flush=True)
"""


def on_ranks(folder: Path, code: str, size: int = 2, **variables: str) -> list[dict[str, Any]]:
    """Run `code` on `size` ranks and return, by rank, all that its calls of `tell(name=value)` said.

    Raises `AssertionError` with what a rank wrote if it fails, and `TimeoutExpired` if ranks wait for one another.
    """
    script, store = folder / "ranks.py", folder / f"ranks-{len(list(folder.iterdir()))}"
    script.write_text(HEAD + code)
    store.mkdir()
    common = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    if size > 1:
        common |= {RANKS_FOLDER: str(store), "WORLD_SIZE": str(size)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(script)], cwd=folder, text=True,
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONPATH": str(Path(__file__).parent.parent)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for rank in range(size)
    ]  # fmt: skip
    try:
        written = [process.communicate(timeout=PATIENCE_SECONDS)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert not any(process.returncode for process in processes), "\n---\n".join(written)
    return [_told(text) for text in written]


def _told(text: str) -> dict[str, Any]:
    lines = [line.removeprefix("TOLD ") for line in text.splitlines() if line.startswith("TOLD ")]
    return {name: value for line in lines for name, value in json.loads(line).items()}
