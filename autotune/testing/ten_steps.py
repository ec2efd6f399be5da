"""Ten optimizer steps of a small real model with one value of a knob: their results, compared with the knob's default.

    python -m autotune.testing.ten_steps FOLDER     the same in a process of its own: reads `asked`, writes `trained`

The model has what knobs need: convolutions, attention, blocks that repeat, and no random numbers of its own.
"""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from autotune.core.records import Config, Value
from autotune.knobs import KNOBS, environ
from autotune.knobs.base import Knob, Plan
from autotune.targets import resolve
from autotune.targets.base import Order
from autotune.testing.target_contract import Recorder, clean_imports

STEPS = 10
GLOBAL_BATCH = 32  # samples of a step, for any micro-batch
SEED = 5
# The largest relative difference that still counts as rounding: of a loss, and of the weights as a share of their
# change. It is twenty times the effect of another order of sums in float32, and a twentieth of that of float16. For
# this model: docs/notes/precision.md 5.
LOSS_TOLERANCE = 2e-6
WEIGHT_TOLERANCE = 2e-5
TRAINING = """
import torch
from torch import nn
from torch.nn import functional as F

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.project, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
        self.widen, self.narrow = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        q, k, v = self.project(self.norm(x)).view(len(x), -1, 4, 24).transpose(1, 2).chunk(3, dim=-1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.GELU(), nn.Conv2d(16, 32, 3, stride=2))
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(6)), nn.Linear(32, 10)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))

def model():
    torch.manual_seed(1)
    return Net()

def dataset():
    drawn = torch.Generator().manual_seed(2)
    return torch.utils.data.TensorDataset(
        torch.randn(352, 3, 8, 8, generator=drawn), torch.randint(10, (352,), generator=drawn)
    )

def loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])

def optimizer(parameters):  # eps: else it makes a step of the rounding of a gradient that is 0
    return torch.optim.AdamW(parameters, lr=0.002, eps=1e-3)
"""


@dataclass(frozen=True, kw_only=True)
class TenSteps:
    """The result of ten steps: the loss of each, and all weights before and after."""

    losses: tuple[float, ...]
    first: tuple[float, ...]
    last: tuple[float, ...]

    def differs(self, usual: TenSteps) -> str:
        """Return by how much this differs from what `usual` computed; empty if within rounding."""
        pairs = zip(self.losses, usual.losses, strict=True)
        losses = max(abs(one - other) / abs(other) for one, other in pairs)
        weights = math.dist(self.last, usual.last) / math.dist(usual.first, usual.last)
        if losses <= LOSS_TOLERANCE and weights <= WEIGHT_TOLERANCE:  # written so that nan counts as a difference
            return ""
        return (
            f"its losses differ by {losses:.1e} in {STEPS} steps (rounding: {LOSS_TOLERANCE:g}), its weights by "
            f"{weights:.1e} of their way (rounding: {WEIGHT_TOLERANCE:g})"
        )


def differences(
    knob: Knob, several: Sequence[Mapping[str, Value]], usual: Mapping[str, Value], device: str = "cpu"
) -> list[str]:
    """Return what `TenSteps.differs` says about each of several configurations and the usual one.

    They are values of all knobs; `knob` itself may be in no registry. Raises what torch and the processes raise.
    """
    expected = _trained(knob, [usual], device)[0]
    alike = groupby(several, key=lambda values: _variables(knob, values))
    return [one.differs(expected) for _, some in alike for one in _trained(knob, list(some), device)]


def _variables(knob: Knob, values: Mapping[str, Value]) -> dict[str, str]:
    return {**environ(values), **knob.environ(values[knob.name])}


def _trained(knob: Knob, several: Sequence[Mapping[str, Value]], device: str) -> list[TenSteps]:
    """Train with each: in a process of its own if one has environment variables, or a switch of a whole process."""
    variables = _variables(knob, several[0])
    if not variables and not any(_plan(knob, values, device).setup for values in several):
        return [train(knob, values, device) for values in several]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "asked").write_bytes(pickle.dumps((knob, list(map(dict, several)), device)))
        # Threads that spin would slow one another down if a knob's count exceeds the cores.
        own = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_WAIT_POLICY": "passive"}
        line = [sys.executable, "-m", "autotune.testing.ten_steps", folder]
        subprocess.run(line, env={**os.environ, **own, **variables}, check=True)
        found: list[dict[str, Any]] = pickle.loads((place / "trained").read_bytes())
    return [TenSteps(**one) for one in found]


def train(knob: Knob, values: Mapping[str, Value], device: str) -> TenSteps:
    """Take ten optimizer steps in this process, and return their result."""
    from autotune.child.run import seed_all

    held: list[Any] = []
    plan = _plan(knob, values, device)

    def hold(model: Any) -> Any:
        held.append((model, _weights(model)))
        return model

    plan.model_transforms.append(hold)
    watch = Recorder(*[Order.CONTINUE] * (STEPS - 1))
    with tempfile.TemporaryDirectory() as folder, clean_imports(), warnings.catch_warnings():
        target = Path(folder) / "training_of_ten_steps.py"
        target.write_text(TRAINING)
        warnings.simplefilter("ignore")  # of more workers than this machine has cores
        session = resolve(str(target)).open(Config(values=dict(values)), plan, lambda phase: seed_all(SEED))
        session.train(watch)
    ((model, first),) = held
    losses = tuple(float(step.loss) for step in watch.steps)
    return TenSteps(losses=losses, first=first, last=_weights(model))


def _plan(knob: Knob, values: Mapping[str, Value], device: str) -> Plan:
    plan = Plan(device=device)
    registered = [one for one in KNOBS if one.name != knob.name]
    places = [one.name for one in KNOBS]
    place = places.index(knob.name) if knob.name in places else len(registered)
    for one in (*registered[:place], knob, *registered[place:]):
        one.apply(values[one.name], plan)
    return plan


def _weights(model: Any) -> tuple[float, ...]:
    return tuple(value for parameter in model.parameters() for value in parameter.detach().float().flatten().tolist())


if __name__ == "__main__":
    here = Path(sys.argv[1])
    asked_knob, configurations, where = pickle.loads((here / "asked").read_bytes())
    answers = [vars(train(asked_knob, one, where)) for one in configurations]
    (here / "trained").write_bytes(pickle.dumps(answers))
