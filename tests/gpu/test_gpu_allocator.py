"""Expandable segments and pinned batches take effect, and are seen; run wherever a GPU is at hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.core.results import Outcome
from autotune.knobs import allocator, environ
from autotune.launch.subprocess import SubprocessLauncher
from tests.targets_support import COMPLETE
from tests.worlds import config

SHORT = ProbeBudget(min_seconds=0.05, max_seconds=0.2, min_warmup_seconds=0.0)
SEEN = """
import torch
from autotune.knobs.observed import Observed
from autotune.targets.allocators import with_allocators
torch.ones(1 << 20, device="cuda")
print(with_allocators(Observed()).expandable_segments)
"""


@pytest.mark.parametrize("value", [None, allocator.EXPANDABLE])
def test_expandable_segments_are_seen(value: str | None) -> None:
    variables = {name: text for name, text in os.environ.items() if name not in allocator.VARIABLES}

    ended = subprocess.run(
        [sys.executable, "-c", SEEN], env={**variables, **environ({"allocator": value})}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip

    assert ended.stdout.strip() == str(value is not None)


@pytest.mark.parametrize("values", [{"allocator": allocator.EXPANDABLE}, {"pin_memory": False, "num_workers": 1}])
def test_a_probe_trains_with_them(tmp_path: Path, values: dict[str, str | bool | int]) -> None:
    target = tmp_path / "model.py"
    target.write_text(COMPLETE)
    request = ProbeRequest(target=str(target), config=config(batch_size=8, **values), device="cuda:0", budget=SHORT)

    with SubprocessLauncher(isolation="fork") as launcher:
        result = launcher.run(request, tmp_path)

    assert result.outcome is Outcome.OK, result.failure
