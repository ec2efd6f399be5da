"""What is done with a LightningModule that needs its Trainer: `Trainer.fit` runs, with the configuration's values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotune.core.records import Config
from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.core.results import Outcome
from autotune.errors import TargetError
from autotune.knobs import defaults
from autotune.launch.base import Launcher
from autotune.study import disk
from tests.targets_support import inspect, paired_losses, refused, start, watch, write

pytest.importorskip("lightning", reason="needs lightning, which is tuned for and not needed")
pytestmark = pytest.mark.filterwarnings("default")  # what it warns of is not ours to mend

LEFT_ALONE = {"prefetch_factor": None, "persistent_workers": None}  # left to the loader
HEAD = """
import torch
from lightning import LightningDataModule, LightningModule, Trainer
from lightning.pytorch import callbacks, plugins, strategies
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ROWS = TensorDataset(torch.arange(64.0).reshape(64, 1) / 64, torch.zeros(64, 1))
"""
NET = """
class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 3), nn.Linear(3, 1))
        self.seen = []
        self.rates = []
    def training_step(self, batch, batch_idx):
        self.seen.append(batch[0].shape[0])
        loss = (self.net(batch[0]) - batch[1]).square().mean()
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)
    def train_dataloader(self): return DataLoader(ROWS, batch_size=16, shuffle=True)
"""
GAN = """
class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.critic = nn.Linear(1, 1), nn.Linear(1, 1)
        self.seen, self.steps = [], [0, 0]
    def training_step(self, batch, batch_idx):
        self.seen.append(batch[0].shape[0])
        generator, critic = self.optimizers()
        fake = self.generator(batch[0])
        self.toggle_optimizer(critic)
        critic.zero_grad()
        self.manual_backward(self.critic(batch[0]).mean() ** 2 + (self.critic(fake.detach()).mean() - 1) ** 2)
        critic.step()
        self.untoggle_optimizer(critic)
        if EVERY:
            self.toggle_optimizer(generator)
            generator.zero_grad()
            self.manual_backward(self.critic(fake).mean() ** 2)
            generator.step()
            self.untoggle_optimizer(generator)
    def configure_optimizers(self):
        return [torch.optim.SGD(one.parameters(), lr=0.1) for one in (self.generator, self.critic)]
    def train_dataloader(self): return DataLoader(ROWS, batch_size=16)
"""
BY_TRAINER = "def trainer(): return Trainer(ARGUMENTS)\n"
COMPLETE = HEAD + NET + BY_TRAINER


def _trainer(arguments: str, text: str = HEAD + NET) -> str:
    return text + BY_TRAINER.replace("ARGUMENTS", arguments)


def _told(facts) -> dict[str, str]:
    return {one.name: one.text for one in facts.check_lines}


def test_a_gan_under_manual_optimization_steps_both_in_one_step(tmp_path: Path) -> None:
    text = HEAD + GAN.replace("EVERY", "True")
    facts, session = inspect(tmp_path, text), start(tmp_path, text, batch_size=8)
    told = watch(10)

    session.train(told)

    assert facts.baseline == {
        "batch_size": 16, "gradient_accumulation_steps": 1, "num_workers": 0, "amp_dtype": None, **LEFT_ALONE
    }  # fmt: skip
    assert facts.step.parameters_with_gradient == facts.step.trainable_parameters == 4
    assert _told(facts)["loop"] == "Trainer.fit(), because Net optimizes manually"
    assert facts.framework == "lightning"
    assert [step.samples for step in told.steps] == [8] * 10
    assert session._loop._parts.module.seen == [8] * 10
    assert told.epochs == 1


def test_accumulation_is_not_tuned_where_a_module_steps_by_itself(tmp_path: Path) -> None:
    facts = inspect(tmp_path, HEAD + GAN.replace("EVERY", "True"))

    assert facts.settable is not None and "gradient_accumulation_steps" not in facts.settable
    assert "batch_size" in facts.settable
    assert _told(facts)["accum"] == "not tuned: Net optimizes manually, and decides itself when it steps"


@pytest.mark.parametrize(
    ("every", "count"), [("batch_idx % 2 == 1", 4), ("batch_idx == 0", 4), ("False", 4)], ids=["later", "once", "never"]
)
def test_a_step_is_a_batch_in_which_any_optimizer_stepped(tmp_path: Path, every: str, count: int) -> None:
    told = watch(count)

    start(tmp_path, HEAD + GAN.replace("EVERY", every), batch_size=8).train(told)

    assert [(step.samples, step.micro_batches) for step in told.steps] == [(8, 1)] * count


ACCUMULATING = NET.replace("self.net =", "self.automatic_optimization = False; self.net =").replace(
    "        return loss",
    """
        self.manual_backward(loss / 2)
        if batch_idx % 2:
            self.optimizers().step()
            self.optimizers().zero_grad()""",
)


def test_batches_that_a_module_accumulates_itself_are_one_step(tmp_path: Path) -> None:
    facts = inspect(tmp_path, HEAD + ACCUMULATING)
    told = watch(3)

    start(tmp_path, HEAD + ACCUMULATING, batch_size=8, gradient_accumulation_steps=2).train(told)

    assert facts.baseline["gradient_accumulation_steps"] == 2
    assert facts.step.parameters_with_gradient == 4
    assert [(step.samples, step.micro_batches) for step in told.steps] == [(16, 2)] * 3


@pytest.mark.parametrize("skipped", ["batch_idx == 0", "batch_idx % 3 == 1", "batch_idx % 2", "batch_idx > 1"])
@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_batch_for_which_there_is_no_loss_is_no_step(tmp_path: Path, skipped: str, accumulated: int) -> None:
    returned = f"        return None if {skipped} else loss"
    text = _trainer("", HEAD + NET.replace("        return loss", returned))
    told = watch(6)

    facts = inspect(tmp_path, text)
    start(tmp_path, text, batch_size=4, gradient_accumulation_steps=accumulated).train(told)

    assert facts.step.loss is not None and facts.step.parameters_with_gradient == 4
    assert all(float(step.loss) == float(step.loss) for step in told.steps)  # none is nan
    assert {step.samples for step in told.steps} <= {4, 4 * accumulated}


HOOKS = {
    "backward": "def backward(self, loss): self.mine += 1; loss.backward()",
    "optimizer_step": "def optimizer_step(self, *given): self.mine += 1; super().optimizer_step(*given)",
    "transfer_batch_to_device": "def transfer_batch_to_device(self, batch, *_): self.mine += 1; return batch",
    "on_before_batch_transfer": "def on_before_batch_transfer(self, batch, _): self.mine += 1; return batch",
    "on_train_batch_end": "def on_train_batch_end(self, *_): self.mine += 1",
    "configure_gradient_clipping": "def configure_gradient_clipping(self, *_, **__): self.mine += 1",
}


@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_of_a_step_are_called_by_the_trainer(tmp_path: Path, hook: str) -> None:
    text = HEAD + NET + f"    mine = 0\n    {HOOKS[hook]}\n"
    session = start(tmp_path, text, batch_size=8)

    session.train(watch(3))

    assert _told(inspect(tmp_path, text))["loop"] == f"Trainer.fit(), because there is Net.{hook}"
    assert session._loop._parts.module.mine >= 2


@pytest.mark.parametrize(
    ("old", "new", "method"),
    [
        ("        loss =", "        assert self.trainer.max_epochs == 1000\n        loss =", "training_step"),
        ("lr=0.5", "lr=1 / self.trainer.estimated_stepping_batches", "configure_optimizers"),
        ("        loss =", "        assert self.current_epoch == 0\n        loss =", "training_step"),
    ],
)
def test_a_module_that_asks_its_trainer_has_one(tmp_path: Path, old: str, new: str, method: str) -> None:
    facts = inspect(tmp_path, HEAD + NET.replace(old, new))

    assert facts.owns_loop
    assert _told(facts)["loop"] == f"Trainer.fit(), because a Trainer is asked by Net.{method}"


@pytest.mark.parametrize("name", ["validation_step", "on_train_epoch_end", "on_validation_epoch_end"])
def test_what_is_read_between_steps_needs_no_trainer(tmp_path: Path, name: str) -> None:
    facts = inspect(tmp_path, HEAD + NET + f"    def {name}(self, *_): self.trainer.anything\n")

    assert not facts.owns_loop


def test_a_trainer_that_spawns_ranks_is_told_that_this_is_not_tuned(tmp_path: Path) -> None:
    facts = inspect(tmp_path, _trainer("strategy='ddp_spawn', devices=2, accelerator='cpu', max_epochs=3"))

    (told,) = (one for one in facts.check_lines if one.name == "ranks")
    assert told.text.startswith("ddp_spawn starts ranks by pickling the model") and "model.py:" in told.text
    assert told.needs_attention


def test_what_the_trainer_is_made_with_today_is_the_baseline(tmp_path: Path) -> None:
    facts = inspect(tmp_path, _trainer("accumulate_grad_batches=3, precision='bf16-mixed', max_epochs=2"))

    assert facts.baseline == {
        "batch_size": 16, "gradient_accumulation_steps": 3, "num_workers": 0, "amp_dtype": "bfloat16",
        **LEFT_ALONE,
    }  # fmt: skip
    assert facts.settable is None and facts.dataset_samples == 64
    assert [one.name for one in facts.check_lines] == ["model", "data", "loop", "left out", "step"]
    config = Config(values=defaults() | {"batch_size": 8})
    text = _trainer("accumulate_grad_batches=3, precision='bf16-mixed', max_epochs=2")
    assert inspect(tmp_path, text, config).baseline == facts.baseline


OWN_RUN = """
if __name__ == "__main__":
    Trainer(accumulate_grad_batches=2).fit(Net())
"""


@pytest.mark.parametrize(
    "text",
    [HEAD + NET, HEAD + NET + "    def on_train_batch_end(self, *_): pass\n"],
    ids=["our loop", "a Trainer of ours"],
)
def test_a_trainer_that_the_file_makes_when_it_is_run_is_said_not_to_be_used(tmp_path: Path, text: str) -> None:
    line = len(text.splitlines()) + 3

    own = [one for one in inspect(tmp_path, text + OWN_RUN).check_lines if "is not used" in one.text]

    assert [one.text.partition(" is not")[0] for one in own] == [f"Trainer(...) in line {line} of model.py"]
    assert own[0].needs_attention
    assert own[0].override == "write trainer(), or tune the command: autotune check -- python model.py"
    assert not any("is not used" in one.text for one in inspect(tmp_path, text).check_lines)


def test_a_trainer_is_used_where_the_file_says_which(tmp_path: Path) -> None:
    facts = inspect(tmp_path, _trainer("accumulate_grad_batches=3") + OWN_RUN)

    assert not any("is not used" in one.text for one in facts.check_lines)


RECOMPUTING = "torch.utils.checkpoint.checkpoint(self.net, batch[0], use_reentrant=False)"


def test_what_a_module_does_by_itself_is_its_baseline_and_stays(tmp_path: Path) -> None:
    text = _trainer("").replace("import torch\n", "import torch, torch.utils.checkpoint\n", 1)
    assert "self.net(batch[0])" in text

    facts = inspect(tmp_path, text.replace("self.net(batch[0])", RECOMPUTING, 1))

    assert facts.baseline is not None and facts.baseline["activation_checkpointing"] is True
    assert facts.settable is not None and "activation_checkpointing" not in facts.settable
    assert _told(facts)["checkpointing"] == "not tuned: Net does it itself"


@pytest.mark.parametrize("arguments", ["barebones=True", "callbacks=callbacks.StochasticWeightAveraging(1e-2)"])
def test_what_a_probe_cannot_keep_of_a_trainer_is_left_out(tmp_path: Path, arguments: str) -> None:
    start(tmp_path, _trainer(f"{arguments}, max_epochs=2"), batch_size=8).train(told := watch(40))

    assert len(told.steps) == 40


def test_a_file_adds_to_the_baseline_and_says_what_may_be_searched(tmp_path: Path) -> None:
    facts = inspect(tmp_path, _trainer("") + "baseline = {'num_workers': 2}\nspace = {'batch_size': (8, 32)}\n")

    assert facts.baseline["num_workers"] == 2 and facts.baseline["batch_size"] == 16
    assert "batch_size" in facts.space


CALLBACKS = """
class Counting(callbacks.Callback):
    ends = 0
    def on_train_batch_end(self, *_): Counting.ends += 1
"""


def test_the_users_callbacks_run_without_those_that_write_tell_or_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = (
        "callbacks=[Counting(), callbacks.ModelCheckpoint(every_n_train_steps=1), callbacks.TQDMProgressBar(), "
        "callbacks.EarlyStopping('val_loss'), callbacks.LearningRateMonitor()], "
        "gradient_clip_val=0.1, max_time='00:00:00:00'"
    )
    own = "    def configure_callbacks(self): return [callbacks.ModelCheckpoint(), callbacks.EarlyStopping('loss')]\n"
    monkeypatch.chdir(tmp_path)
    session = start(tmp_path, _trainer(made, HEAD + CALLBACKS + NET + own), batch_size=8)

    session.train(watch(10))

    trainer = session._loop._trainer
    assert [type(one).__name__ for one in trainer.callbacks] == ["Counting", "LearningRateMonitor", "Telling"]
    assert trainer.callbacks[0].ends == 10
    assert trainer.gradient_clip_val == 0.1
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["model.py"]


@pytest.mark.parametrize(
    "arguments", ["precision='bf16-true'", "plugins=[plugins.MixedPrecision('bf16-mixed', 'cpu')]"]
)
def test_a_precision_that_no_autocast_replaces_stays(tmp_path: Path, arguments: str) -> None:
    facts = inspect(tmp_path, _trainer(arguments))
    session = start(tmp_path, _trainer(arguments), batch_size=8, amp_dtype="bfloat16")

    session.train(watch(1))

    assert "amp_dtype" not in facts.settable and facts.baseline["amp_dtype"] == "bfloat16"
    assert _told(facts)["precision"].startswith("not tuned: the Trainer has ")
    assert session.observed().precisions == {"bfloat16"}


LOADER = """
class Mine(DataLoader):
    def __init__(self, rows, size): super().__init__(rows, size, collate_fn=self.join); self.calls = 0
    def __iter__(self): self.calls += 1; return super().__iter__()
    @staticmethod
    def join(samples): return [torch.stack(part) for part in zip(*samples)]

class Data(LightningDataModule):
    def setup(self, stage): self.loader = Mine(ROWS, 4)
    def train_dataloader(self): return self.loader
"""


def test_a_loader_is_made_again_as_an_object_of_its_class_wherever_it_was_made(tmp_path: Path) -> None:
    text = _trainer("", HEAD + LOADER + NET)
    facts, session = inspect(tmp_path, text), start(tmp_path, text, batch_size=12, num_workers=1)

    session.train(watch(7))

    loader = session._loop._trainer.train_dataloader
    assert (facts.baseline["batch_size"], facts.has_collate) == (4, True)
    assert type(loader).__name__ == "Mine" and loader.calls == 2
    assert (loader.batch_size, loader.num_workers, loader.persistent_workers) == (12, 1, True)
    assert session._loop._parts.module.seen == [12] * 7  # 64 rows: the last 4 of an epoch are left out
    assert (session.observed().micro_batch, session.observed().workers) == (12, 1)


def test_a_class_that_asks_for_the_batch_size_says_nothing_about_today(tmp_path: Path) -> None:
    data = LOADER.replace("Mine(ROWS, 4)", "Mine(ROWS, self.size)").replace(
        "    def setup", "    def __init__(self, batch_size): super().__init__(); self.size = batch_size\n    def setup"
    )

    baseline = inspect(tmp_path, _trainer("", HEAD + data + NET)).baseline

    assert baseline == {"gradient_accumulation_steps": 1, "amp_dtype": None}


def test_a_last_step_of_fewer_micro_batches_is_left_out(tmp_path: Path) -> None:
    told = watch(5)

    start(tmp_path, COMPLETE.replace("ARGUMENTS", ""), batch_size=8, gradient_accumulation_steps=3).train(told)

    assert [(step.samples, step.micro_batches) for step in told.steps] == [(24, 3)] * 5
    assert told.epochs == 2


@pytest.mark.parametrize("arguments", ["max_steps=3", "max_epochs=1"])
@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("{'scheduler': torch.optim.lr_scheduler.LinearLR(descent, 1.0, 0.0, N), 'interval': 'step'}", "end"),
        ("{'scheduler': torch.optim.lr_scheduler.ReduceLROnPlateau(descent), 'monitor': 'val_loss'}", "same"),
    ],
)
def test_a_schedule_ends_where_the_users_training_would(
    tmp_path: Path, arguments: str, schedule: str, rates: str
) -> None:
    count = 3 if "steps" in arguments else 4
    text = _trainer(arguments).replace(
        "        return torch.optim.SGD(self.parameters(), lr=0.5)",
        f"        descent = torch.optim.SGD(self.parameters(), lr=0.5)\n"
        f"        assert self.trainer.estimated_stepping_batches == {count}\n"
        f"        return {{'optimizer': descent, 'lr_scheduler': {schedule.replace('N', str(count))}}}",
    )
    session = start(tmp_path, text, batch_size=16)

    session.train(watch(9))

    rate = session._loop._trainer.optimizers[0].param_groups[0]["lr"]
    assert rate == pytest.approx(0.0 if rates == "end" else 0.5, abs=1e-6)


def test_channels_last_reaches_the_batches_too(tmp_path: Path) -> None:
    text = COMPLETE.replace("ARGUMENTS", "").replace(
        "torch.arange(64.0).reshape(64, 1) / 64", "torch.randn(64, 3, 2, 2)"
    )
    text = text.replace("nn.Sequential(", "nn.Sequential(nn.Conv2d(3, 1, 2), nn.Flatten(), ").replace(
        "batch[0].shape[0]", "batch[0].is_contiguous(memory_format=torch.channels_last)"
    )
    session = start(tmp_path, text, batch_size=8, channels_last=True)

    session.train(watch(1))

    assert session._loop._parts.module.seen == [True]


STOPPING = "        if batch_idx == 2: self.trainer.should_stop = True\n        return loss"
SEVERAL = "return {'a': DataLoader(ROWS, 4), 'b': DataLoader(ROWS, 4)}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_trainer("").replace("return Trainer()", "return 1"), "trainer() returned a int."),
        (_trainer("").replace("def trainer(): return Trainer()", "made = Trainer()\ndef trainer(): return made"),
         "trainer() returned a Trainer that was made before it was called."),
        (_trainer("strategy='fsdp'"), "The Trainer has the strategy fsdp, which divides a model among devices. A probe "
         "trains on one device. Leave the strategy out, or tune the command that starts its ranks: autotune search -- "
         "torchrun --nproc-per-node 2 train.py"),
        (_trainer("strategy='deepspeed_stage_2'"), "on one device. Leave the strategy out."),
        (_trainer("strategy=strategies.FSDPStrategy()"), "The Trainer has the strategy FSDPStrategy, which divides"),
        (_trainer("callbacks=callbacks.BatchSizeFinder()"), "has the callback BatchSizeFinder, which changes"),
        (_trainer("callbacks=[callbacks.GradientAccumulationScheduler({0: 2})]"), "which changes the accumulation"),
        (_trainer("").replace("DataLoader(ROWS, b", "DataLoader(TensorDataset(*ROWS[:5]), b"),
         "has 5 samples, one step needs 8 samples."),
        (_trainer("").replace("shuffle=True", "sampler=torch.utils.data.SubsetRandomSampler(range(6))"),
         "has 6 samples, one step needs 8 samples."),
        (_trainer("").replace("return DataLoader(ROWS, batch_size=16, shuffle=True)", SEVERAL),
         "Return one DataLoader, or tune the command that runs your Trainer: autotune search -- python train.py"),
        (_trainer("").replace("nn.Linear(1, 3)", "nn.LazyLinear(3)"), "Net.net.0.weight has no shape yet."),
        (_trainer("").replace("        return loss", STOPPING), "ended its training before it was measured"),
        (_trainer("").replace("        self.seen.append", "        raise KeyError('mine')  # "), "mine"),
        (_trainer("") + "def dataset(): return ROWS\n", "has dataset, which the loop of autotune would read, and it"),
    ],
)  # fmt: skip
def test_what_cannot_be_probed_is_told_with_what_to_do(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises((TargetError, KeyError), match=re.escape(said)):
        start(tmp_path, text, batch_size=8).train(watch(9))


def test_an_epoch_that_the_trainer_cuts_below_one_step_is_told(tmp_path: Path) -> None:
    session = start(tmp_path, _trainer("limit_train_batches=1"), batch_size=8, gradient_accumulation_steps=2)

    with pytest.raises(TargetError, match="An epoch has 1 batches, one step needs 2"):
        session.train(watch(9))


def test_batches_of_another_size_than_was_asked_for_are_not_measured(tmp_path: Path) -> None:
    join = "collate_fn=lambda rows: [torch.stack(part)[:4] for part in zip(*rows)], batch_size"
    text = _trainer("").replace("batch_size", join)

    for config, size in ((None, 16), (Config(values=defaults() | {"batch_size": 8}), 8)):
        with pytest.raises(TargetError, match=f"was given batch_size {size} and trained with batch_size 4"):
            inspect(tmp_path, text, config)


def test_a_trainer_of_an_older_version_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = pytest.importorskip("pytorch_lightning", reason="needs pytorch_lightning, which is tuned for only")
    monkeypatch.setattr(library, "__version__", "1.9.5")  # which the oldest environment really has

    text = (HEAD + GAN).replace("lightning.pytorch", "pytorch_lightning")

    assert str(refused(tmp_path, text.replace("from lightning import", "from pytorch_lightning import"))) == (
        "A probe of a Trainer needs pytorch_lightning 2.0 or later, and 1.9.5 is installed. Trainers before 2.0 have "
        "other loops and other arguments. Install a later one, or tune the command that runs your Trainer: autotune "
        "search -- python train.py"
    )


def test_the_other_name_of_the_library_has_a_trainer_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("pytorch_lightning", "2.0", reason="needs pytorch_lightning, which is tuned for and not needed")
    old = GAN.replace("EVERY", "True")
    text = (HEAD + old).replace("from lightning.pytorch", "from pytorch_lightning")
    text = text.replace("from lightning import", "from pytorch_lightning import")
    session, told = start(tmp_path, text, batch_size=8), watch(2)

    session.train(told)

    assert type(session._loop._trainer).__module__.startswith("pytorch_lightning")
    assert [step.samples for step in told.steps] == [8, 8]
    mixed = text.replace("import torch\n", "import torch\nimport lightning\n", 1) + (
        "def trainer(): return lightning.Trainer()\n"
    )
    assert "is called for a pytorch_lightning.Trainer" in str(refused(tmp_path, mixed))


def test_a_probe_measures_it_as_a_process_of_its_own(tmp_path: Path, forking_launcher: Launcher) -> None:
    target = write(tmp_path, HEAD + GAN.replace("EVERY", "True"))
    config = Config(values=defaults() | {"batch_size": 8, "num_workers": 1})
    budget = ProbeBudget(min_seconds=0.3, max_seconds=0.6, min_warmup_seconds=0.1)

    (tmp_path / "probe").mkdir()
    result = forking_launcher.run(
        ProbeRequest(target=str(target), config=config, device="cpu", budget=budget), tmp_path / "probe"
    )

    assert result.outcome is Outcome.OK, result.failure
    assert result.measurement is not None
    assert set(result.measurement.samples) == {8 * result.measurement.steps_per_block}
    assert result.measurement.compute_only is None and result.measurement.loader_only is None


def test_its_losses_in_half_precision_are_paired_with_those_in_full(tmp_path: Path, forking_launcher: Launcher) -> None:
    losses = paired_losses(
        forking_launcher, write(tmp_path, HEAD + GAN.replace("EVERY", "True")), disk.make(tmp_path / "pairs")
    )

    assert losses["perturbed"] == pytest.approx(losses["reference"], rel=1e-4)
    assert losses["candidate"] == pytest.approx(losses["reference"], rel=5e-2)
    assert losses["candidate"] != losses["reference"]


@pytest.mark.parametrize("text", [COMPLETE, HEAD + GAN.replace("EVERY", "True")])
def test_the_update_of_its_optimizers_is_found_and_set(tmp_path: Path, text: str) -> None:
    facts = inspect(tmp_path, text.replace("ARGUMENTS", ""))
    session = start(tmp_path, text.replace("ARGUMENTS", ""), batch_size=16, fused_optimizer="fused")
    session.train(watch(1))

    assert facts.optimizer is not None and "fused" in facts.optimizer.possible
    assert facts.found == {}
    assert session.observed().optimizer_implementation == "fused"
