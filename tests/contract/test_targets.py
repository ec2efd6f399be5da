"""Every kind of target keeps the contract for targets; a kind whose framework is not installed is skipped."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from autotune.core.records import CheckLine, Config, TargetFacts
from autotune.knobs.base import Plan
from autotune.targets import kinds, resolve
from autotune.targets.loaded import Loaded
from autotune.targets.model_facts import model_facts
from autotune.targets.own_loop import LoopReport, OwnLoop
from autotune.testing.target_contract import TargetContract

THEIRS = pytest.mark.filterwarnings("default")  # what they warn of is not ours to mend


def needs(library: str, major: int = 0) -> pytest.MarkDecorator:
    absent = find_spec(library) is None or int(version(library).partition(".")[0]) < major
    since = f" {major} or later" if major else ""
    return pytest.mark.skipif(absent, reason=f"needs {library}{since}, which is tuned for and not needed")


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


COMMAND = (
    NET
    + """
import argparse
import itertools

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int)
parser.add_argument("--accum", type=int)
parser.add_argument("--workers", type=int)
parser.add_argument("--bf16", action="store_true")
asked = parser.parse_args()
model = net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in itertools.count():
    loader = DataLoader(rows(), asked.batch_size, shuffle=True, num_workers=asked.workers, drop_last=True)
    for number, (x, y) in enumerate(loader, 1):
        with torch.autocast("cpu", torch.bfloat16, enabled=asked.bf16):
            loss = nn.functional.cross_entropy(model(x), y) / asked.accum
        loss.backward()
        if number % asked.accum == 0:
            optimizer.step()
            optimizer.zero_grad()
"""
)


class TestCommand(TargetContract):
    """A script that nobody wrote for us, run as it is."""

    text = COMMAND

    def _named(self, file):
        arguments = "--batch-size {batch_size=8} --accum {gradient_accumulation_steps=1} --workers {num_workers=0}"
        return resolve(f"-- python {file} {arguments} {{bf16:flag}}")


class HandWritten(OwnLoop):
    """A loop that nobody has heard of: a file whose `fit` trains by itself."""

    def __init__(self, loaded: Loaded) -> None:
        self.label, self.root, self._module = loaded.label, loaded.root, loaded.module

    def build(self, config: Config | None, plan: Plan) -> nn.Module:
        self._plan, self._model = plan, self._module.net()
        for transform in plan.model_transforms:
            self._model = transform(self._model)
        return self._model

    def run(self, report: LoopReport) -> None:
        options = {"batch_size": 8} | self._plan.loader_options
        descent = torch.optim.SGD(self._model.parameters(), lr=0.01)
        while not report.stopped:
            batches = iter(DataLoader(self._module.rows(), shuffle=True, drop_last=True, **options))
            while not report.stopped and self._step(report, descent, batches, options["batch_size"]):
                pass
            if not report.stopped:
                report.epoch()

    def _step(self, report: LoopReport, descent: Any, batches: Iterator[Any], size: int) -> bool:
        count = self._plan.accumulation_steps
        held = list(itertools.islice(batches, count))
        if len(held) < count:
            return False
        report.fetched(held, size, 0.0)
        for x, y in held:
            with ExitStack() as stack:
                for context in self._plan.forward_contexts:
                    stack.enter_context(context())
                loss = nn.functional.cross_entropy(self._model(x), y) / count
            loss.backward()
            report.micro_batch(loss.detach())
        descent.step()
        descent.zero_grad()
        report.step()
        return True

    def facts(self) -> TargetFacts:
        own = (CheckLine(name="loop", text="fit()"),)
        return TargetFacts(
            **model_facts(self._model), name="Net", data="dataset", dataset_samples=64, owns_loop=True, check_lines=own
        )


class Deaf(HandWritten):
    """Trains with batches of its own size, whatever is asked for."""

    def build(self, config: Config | None, plan: Plan) -> nn.Module:
        plan.loader_options["batch_size"] = 8
        return super().build(config, plan)


class TestHandWrittenLoop(TargetContract):
    """A kind of a stranger's: a class, a function that recognises it, an entry. It needs no framework."""

    text = NET + "def fit(): ...\n"
    loop: type[HandWritten] = HandWritten

    @pytest.fixture(autouse=True)
    def registered(self, monkeypatch):
        def read(loaded: Loaded, offered: Any) -> OwnLoop | None:
            return self.loop(loaded) if hasattr(loaded.module, "fit") else None

        monkeypatch.setattr(kinds, "KINDS", (read, *kinds.KINDS))


def test_a_loop_that_does_not_do_what_it_is_asked_breaks_the_contract(tmp_path, monkeypatch):
    monkeypatch.setattr(kinds, "KINDS", (lambda loaded, _: Deaf(loaded), *kinds.KINDS))

    with pytest.raises(AssertionError):
        TestHandWrittenLoop().test_every_step_has_the_samples_that_were_asked_for(tmp_path)


@THEIRS
@needs("lightning")
@pytest.mark.slow
class TestLightningModule(TargetContract):
    text = LIGHTNING


WITH_TRAINER = """
from lightning import Trainer

def trainer(**arguments): return Trainer(max_epochs=1, gradient_clip_val=1.0, **arguments)
"""


@THEIRS
@needs("lightning")
@pytest.mark.slow
class TestLightningTrainer(TargetContract):
    text = LIGHTNING + WITH_TRAINER


@THEIRS
@needs("pytorch_lightning")
@pytest.mark.slow
class TestPytorchLightningModule(TargetContract):
    text = LIGHTNING.replace("from lightning", "from pytorch_lightning")

    @pytest.fixture(autouse=True)
    def imported(self):
        import_module("pytorch_lightning")  # which stays imported: it cannot be imported twice


@THEIRS
@needs("pytorch_lightning", major=2)
@pytest.mark.slow
class TestPytorchLightningTrainer(TargetContract):
    """The same library under its other name, with classes of its own."""

    text = (LIGHTNING + WITH_TRAINER).replace("from lightning", "from pytorch_lightning")

    @pytest.fixture(autouse=True)
    def imported(self):
        import_module("pytorch_lightning")  # which stays imported: it cannot be imported twice


@THEIRS
@needs("transformers")
@pytest.mark.slow
class TestHuggingFaceTrainer(TargetContract):
    text = TRAINER
