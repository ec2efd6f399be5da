"""Every kind of target keeps the contract for targets; a kind whose framework is not installed is skipped."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from autotune.targets import resolve
from autotune.testing.target_contract import TargetContract

THEIRS = pytest.mark.filterwarnings("default")  # what they warn of is not ours to mend


def needs(library: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(library) is None, reason=f"needs {library}, which is tuned for and not needed")


NET = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def rows(): return TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
def net(): return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
"""
LIGHTNING = (
    NET
    + """
from lightning import LightningModule

class Net(LightningModule):
    def __init__(self, width=8):
        super().__init__()
        self.net = net()

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

    def train_dataloader(self):
        return DataLoader(rows(), batch_size=8, shuffle=True)
"""
)
TRAINER = (
    NET
    + """
from transformers import Trainer, TrainingArguments

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x, labels):
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

def trainer():
    data = [{"x": x, "labels": y} for x, y in rows()]
    arguments = TrainingArguments("out", per_device_train_batch_size=8, num_train_epochs=1)
    return Trainer(Net(), arguments, train_dataset=data)
"""
)


class TestFunctions(TargetContract):
    text = NET + "model, dataset = net, rows\n"


class TestOwnLoader(TargetContract):
    text = (
        NET
        + """
model = net
def dataloader(batch_size, num_workers): return DataLoader(rows(), batch_size, num_workers=num_workers, drop_last=True)
"""
    )


class TestBuilder(TargetContract):
    """A target that is one function of a file."""

    text = NET + "def build(): return net(), rows()\n"

    def _target(self, folder):
        return resolve(f"{super()._target(folder).reference.file}:build")


@THEIRS
@needs("lightning")
class TestLightningModule(TargetContract):
    text = LIGHTNING


@THEIRS
@needs("transformers")
class TestHuggingFaceTrainer(TargetContract):
    text = TRAINER
