"""Writes a user's file into a temporary folder, and runs it as a probe would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.core.records import Config, TargetFacts, Value
from autotune.core.results import Outcome
from autotune.errors import TargetError
from autotune.knobs import defaults, plan_of
from autotune.launch.base import Launcher
from autotune.precision.records import PrecisionCheckRequest
from autotune.targets import resolve
from autotune.targets.base import Order, Session
from autotune.testing.target_contract import Recorder, clean_imports

HEAD = "import torch\nfrom torch import nn\nfrom torch.utils.data import Dataset, IterableDataset, TensorDataset\n"
MODEL = HEAD + "def model(): return nn.Linear(4, 2)\n"
DATASET = "def dataset(): return TensorDataset(torch.randn(100, 4), torch.randint(2, (100,)))\n"
COMPLETE = MODEL + DATASET


def watch(steps: int) -> Recorder:
    """A watch that lets that many optimizer steps happen."""
    return Recorder(*[Order.CONTINUE] * (steps - 1))


def inspect(folder: Path, text: str, config: Config | None = None, name: str = "model.py") -> TargetFacts:
    """What is found out about a target file with this text."""
    return look(str(write(folder, text, name)), config)


def look(reference: str, config: Config | None = None) -> TargetFacts:
    with clean_imports():
        return resolve(reference).inspect("cpu", config, lambda phase: None)


def refused(folder: Path, text: str) -> TargetError:
    """The error that a target file with this text is refused with."""
    with pytest.raises(TargetError) as caught:
        inspect(folder, text)
    return caught.value


def start(folder: Path, text: str, phase: Callable[[str], None] = lambda phase: None, **values: Value) -> Session:
    """A session of a target file with this text, in the default configuration changed by `values`."""
    config = Config(values=defaults() | values)
    with clean_imports():
        return resolve(str(write(folder, text))).open(config, plan_of(config.values, "cpu"), phase)


def write(folder: Path, text: str, name: str = "model.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def paired_losses(launcher: Launcher, target: Path, folder: Path) -> dict[str, list[float]]:
    """The losses of a real precision check of bf16 with fp32 at batch 8, by role; each run has seen gradients."""
    full = Config(values=defaults() | {"batch_size": 8})
    half = Config(values=full.values | {"amp_dtype": "bfloat16"})
    result = launcher.run(
        PrecisionCheckRequest(target=str(target), reference=full, candidate=half, device="cpu", steps=8, seeds=(1,)),
        folder,
    )
    assert result.outcome is Outcome.OK, result.failure
    assert all(norm > 0 for run in result.runs for norm in run.gradient_norms)
    return {run.role: [loss or 0.0 for loss in run.losses] for run in result.runs}
