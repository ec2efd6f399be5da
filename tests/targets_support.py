"""Writes a user's file into a temporary folder, and runs it as a probe would."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.core.records import Config, TargetFacts, Value
from autotune.errors import TargetError
from autotune.knobs import KNOBS, defaults
from autotune.knobs.base import Plan
from autotune.targets import resolve
from autotune.targets.base import Command, Session, Step

HEAD = "import torch\nfrom torch import nn\nfrom torch.utils.data import Dataset, IterableDataset, TensorDataset\n"
MODEL = HEAD + "def model(): return nn.Linear(4, 2)\n"
DATASET = "def dataset(): return TensorDataset(torch.randn(100, 4), torch.randint(2, (100,)))\n"
COMPLETE = MODEL + DATASET


class Recorder:
    """A watch that answers with `commands`, and stops when they are used up."""

    steps_at_once = 1

    def __init__(self, *commands: Command) -> None:
        self._commands = list(commands)
        self.steps: list[Step] = []
        self.loads: list[int] = []
        self.epochs = self.micro_batches = 0
        self.first_batches: list[float] = []

    def first_batch(self, seconds: float) -> None:
        self.first_batches.append(seconds)

    def epoch(self) -> None:
        self.epochs += 1

    def step(self, step: Step) -> Command:
        self.steps.append(step)
        return self._next()

    def micro_batch(self) -> None:
        self.micro_batches += 1

    def loaded(self, samples: int) -> Command:
        self.loads.append(samples)
        return self._next()

    def _next(self) -> Command:
        return self._commands.pop(0) if self._commands else Command.STOP


def watch(steps: int) -> Recorder:
    """A watch that lets that many optimizer steps happen."""
    return Recorder(*[Command.CONTINUE] * (steps - 1))


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
    plan = Plan(device="cpu")
    for knob in KNOBS:
        knob.apply(config[knob.name], plan)
    with clean_imports():
        return resolve(str(write(folder, text))).open(config, plan, phase)


def write(folder: Path, text: str, name: str = "model.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@contextmanager
def clean_imports() -> Iterator[None]:
    """Leave `sys.path` and `sys.modules` as if nothing of the user's had been imported."""
    path, modules = list(sys.path), set(sys.modules)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if not any(part in file for part in ("site-packages", "lib/python")) and not name.startswith("autotune"):
                del sys.modules[name]
