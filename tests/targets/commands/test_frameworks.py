"""Scripts after the documentation of frameworks, unmodified, in the hands of a probe."""

from __future__ import annotations

import pytest

from autotune.targets.commands.command import Command
from autotune.targets.commands.recognition.recognise import recognise
from tests.targets.commands.test_watched_commands import TRAIN, command, inspect, refused, steps

GAN = """
import os, warnings
warnings.simplefilter("ignore")
from lightning import LightningModule, Trainer

class Gan(LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.critic = nn.Linear(4, 4), nn.Linear(4, 1)

    def training_step(self, batch, index):
        generator, critic = self.optimizers()
        real, _ = batch
        fake = self.generator(torch.randn(len(real), 4))
        critic.zero_grad()
        self.manual_backward(self.critic(fake.detach()).mean() - self.critic(real).mean())
        critic.step()
        generator.zero_grad()
        self.manual_backward(-self.critic(self.generator(torch.randn(len(real), 4))).mean())
        generator.step()

    def configure_optimizers(self):
        return [torch.optim.Adam(one.parameters()) for one in (self.generator, self.critic)]

trainer = Trainer(
    max_epochs=-1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Gan(), DataLoader(data, int(sys.argv[2]), shuffle=True))
"""
RESTARTING = """
from accelerate.utils import find_executable_batch_size
@find_executable_batch_size(starting_batch_size=8)
def train(size):
    for x, y in batches(size): step(x, y)
train()
"""
KEYS = """
given = dict(word.lstrip("+").split("=") for word in sys.argv[1:])
import hydra_like_settings as hydra
for x, y in batches(int(given["train.batch_size"]), num_workers=int(given["data.num_workers"])): step(x, y)
"""


def test_a_gan_under_manual_optimization_is_measured_by_its_command(tmp_path):
    pytest.importorskip("lightning", reason="needs lightning, which is tuned for and not needed")

    taken = steps(tmp_path, GAN, arguments="--batch-size {batch_size=8}", batch_size=16)

    assert [(step.samples, step.micro_batches) for step in taken] == [(16, 1)] * 3


def test_a_function_that_tries_smaller_batches_is_refused(tmp_path):
    pytest.importorskip("accelerate", reason="needs accelerate, which is tuned for and not needed")

    assert "train.py trains with auto_find_batch_size, which changes the batch size" in refused(tmp_path, RESTARTING)


def test_keys_as_hydra_has_them_are_tuned_as_they_are_typed(tmp_path):
    (tmp_path / "hydra_like_settings.py").write_text("")
    typed = command(tmp_path, KEYS, "+train.batch_size=8 data.num_workers=0")
    arguments = " ".join(recognise(Command.split(typed)).command.text.split()[3:])

    taken = steps(tmp_path, KEYS, arguments=arguments, batch_size=16)

    assert [step.samples for step in taken] == [16, 16, 16]
    facts = inspect(tmp_path, KEYS, arguments)
    assert facts.baseline is not None
    assert (facts.baseline["batch_size"], facts.baseline["num_workers"]) == (8, 0)


LATE = """
import pathlib
class Profiled(torch.optim.SGD):
    def step(self, *arguments): return super().step(*arguments)
optimizer = Profiled(model.parameters(), lr=0.1)
for number, (x, y) in enumerate(batches()):
    pathlib.Path(sys.argv[1]).write_text(str(number + 1))
    step(x, y)
    if number == 1:
        backward, fetch, stepping = torch.autograd.backward, DataLoader.__iter__, optimizer.step
        torch.autograd.backward = lambda *given, **named: backward(*given, **named)
        DataLoader.__iter__ = lambda loader: fetch(loader)
        optimizer.step = lambda *given: stepping(*given)
        optimizer.register_step_post_hook(lambda *given: None)
"""


def test_a_step_that_calls_the_step_of_its_base_class_is_one(tmp_path):
    text = LATE.partition("    if number")[0]

    taken = steps(tmp_path, text, count=6, arguments=str(tmp_path / "trained"))

    assert [(step.samples, step.micro_batches) for step in taken] == [(8, 1)] * 6
    assert (tmp_path / "trained").read_text() == "6"


def test_hooks_that_a_program_installs_late_leave_ours_as_they_are(tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)  # undone, whatever the program left
    monkeypatch.setattr(torch.utils.data.DataLoader, "__iter__", torch.utils.data.DataLoader.__iter__)

    taken = steps(tmp_path, LATE, count=20, arguments=str(tmp_path / "trained"))

    assert [(step.samples, step.micro_batches) for step in taken] == [(8, 1)] * 20
    assert (tmp_path / "trained").read_text() == "20"


@pytest.mark.parametrize(("typed", "is_tuned"), [("", False), ("--use_cpu True", True), ("--use-cpu", True)])
def test_precision_that_transformers_refuses_on_a_cpu_is_not_tuned(tmp_path, monkeypatch, typed, is_tuned):
    transformers = pytest.importorskip("transformers", reason="needs transformers, which is tuned for and not needed")
    monkeypatch.setattr(transformers.training_args, "is_torch_bf16_gpu_available", lambda: False)
    script = f"from transformers import TrainingArguments\n{TRAIN}"

    facts = inspect(tmp_path, script, f"--bf16 {{bf16:True/False=False}} {typed}")

    assert facts.settable is not None
    assert ("amp_dtype" in facts.settable) is is_tuned
