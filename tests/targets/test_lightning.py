"""What is read of a LightningModule that our loop trains, and what is refused."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from autotune.core.records import Config
from autotune.knobs import defaults
from autotune.targets import resolve
from autotune.testing.target_contract import clean_imports
from tests.ranks import on_ranks
from tests.targets_support import inspect, look, refused, start, watch, write

pytest.importorskip("lightning", reason="needs lightning, which is tuned for and not needed")
pytestmark = pytest.mark.filterwarnings("default")  # what it warns of is not ours to mend

HEAD = """
import torch
from lightning import LightningDataModule, LightningModule
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

ROWS = TensorDataset(torch.arange(64.0).reshape(64, 1), torch.zeros(64, 1))
"""
NET = """
class Net(LightningModule):
    def __init__(self, width=3):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, width), nn.Linear(width, 1))
        self.seen = []
    def training_step(self, batch, batch_idx):
        self.seen.append((batch[0][:, 0].tolist(), batch_idx))
        return {"loss": (self.net(batch[0] / 64) - batch[1]).square().mean()}
    def configure_optimizers(self):
        descent = torch.optim.SGD(self.parameters(), lr=0.5)
        return [descent], [torch.optim.lr_scheduler.StepLR(descent, 1)]
"""
OWN_LOADER = "    def train_dataloader(self): return DataLoader(ROWS, batch_size=16, shuffle=True)\n"
COMPLETE = HEAD + NET + OWN_LOADER
DATA = """
class Data(LightningDataModule):
    def __init__(self, batch_size=4): super().__init__(); self.batch_size = batch_size
    def prepare_data(self): self.prepared = True
    def setup(self, stage): assert self.prepared; self.stage = stage
    def train_dataloader(self):
        assert self.stage == "fit"
        return DataLoader(ROWS, batch_size=self.batch_size, collate_fn=list, worker_init_fn=print, sampler=range(8, 64))
"""


def test_its_hooks_are_loss_optimizer_and_data(tmp_path: Path) -> None:
    facts = inspect(tmp_path, COMPLETE)

    told = {one.name: one.text for one in facts.check_lines}
    assert facts.name == "Net"
    assert facts.dataset_samples == 64
    assert told["loss"] == "Net.training_step"
    assert told["optimizer"] == "SGD(lr=0.5, momentum=0) of Net.configure_optimizers"
    assert "without callbacks, loggers, schedulers and clipping" in told["Trainer"]
    assert {one.name: one.override for one in facts.check_lines}["Trainer"] == "def trainer(): return Trainer()"
    assert not facts.owns_loop
    assert facts.framework == "lightning"


def test_its_present_loader_is_the_baseline_unless_the_file_says_more(tmp_path: Path) -> None:
    assert inspect(tmp_path, COMPLETE).baseline == {"batch_size": 16, "num_workers": 0}
    assert inspect(tmp_path, COMPLETE + "baseline = {'batch_size': 2}\n", name="b.py").baseline == {"batch_size": 2}


def test_a_class_that_asks_for_the_batch_size_is_given_it_and_says_nothing_about_today(tmp_path: Path) -> None:
    text = HEAD + NET.replace("width=3", "batch_size") .replace("width", "batch_size") + OWN_LOADER  # fmt: skip

    assert inspect(tmp_path, text).baseline is None
    session = start(tmp_path, text, batch_size=5)
    assert session.model.net[0].out_features == 5


def test_a_datamodule_gives_samples_order_and_collate(tmp_path: Path) -> None:
    text = HEAD + NET.replace("batch[0]", "torch.stack([x for x, _ in batch])").replace("batch[1]", "0.0") + DATA
    session = start(tmp_path, text, batch_size=4, num_workers=1)

    session.train(watch(2))

    assert session.model.seen == [([8.0, 9.0, 10.0, 11.0], 0), ([12.0, 13.0, 14.0, 15.0], 1)]
    assert session.source.loader.worker_init_fn is print


def test_batches_are_changed_as_the_module_says_once_they_are_on_the_device(tmp_path: Path) -> None:
    text = (
        COMPLETE + "    def on_after_batch_transfer(self, batch, dataloader_idx): return batch[0] * 0 + 7, batch[1]\n"
    )
    session = start(tmp_path, text, batch_size=2)

    session.train(watch(1))

    assert session.model.seen == [([7.0, 7.0], 0)]


def test_agreed_names_beside_it_replace_what_it_would_give(tmp_path: Path) -> None:
    text = (
        HEAD + NET + "def optimizer(model): return torch.optim.Adam(model.parameters())\ndef dataset(): return ROWS\n"
    )

    facts = inspect(tmp_path, text)

    assert {f.name: f.text for f in facts.check_lines}["optimizer"] == "Adam(lr=0.001)"
    assert facts.dataset_samples == 64


def test_a_file_that_has_a_model_is_read_by_agreed_names(tmp_path: Path) -> None:
    text = COMPLETE + "def model(): return nn.Linear(1, 1)\ndef dataset(): return ROWS\n"

    assert inspect(tmp_path, text).name == "Linear"


def test_a_named_class_or_function_decides_between_several(tmp_path: Path) -> None:
    text = (
        COMPLETE
        + "class Other(Net):\n    def training_step(self, batch, batch_idx): return super().training_step(batch, 0)\n"
    )
    two = text + "class Third(LightningModule): pass\n"

    assert inspect(tmp_path, text).name == "Other"  # what it derives from is not meant
    assert "has Other and Third, each a LightningModule" in str(refused(tmp_path, two))
    write(tmp_path, two + "def build(): return Net(), None\n", "two.py")
    assert look(f"{tmp_path / 'two.py'}:Net").name == "Net"
    assert look(f"{tmp_path / 'two.py'}:build").name == "Net"


def test_a_shape_run_builds_one_for_every_arm(tmp_path: Path) -> None:
    held: list[torch.Tensor] = []
    text = COMPLETE.replace("batch[0][:, 0].tolist()", "None")  # which takes contents
    for reference in (write(tmp_path, text), f"{write(tmp_path, text + 'net = Net()', 'object.py')}:net"):
        with clean_imports():
            target = resolve(str(reference)).shape_run(
                Config(values=defaults()), "cpu", lambda name: None, shapes_vary=False
            )
            for dtype in (None, "bfloat16"):
                target.training({"amp_dtype": dtype}, 1).step(32, nullcontext(), held.append)

    assert [tuple(tensor.shape) for tensor in held] == [(32, 1)] * 8


@pytest.mark.parametrize("hook", ["configure_model(self)", "setup(self, stage)"])
def test_every_arm_of_a_shape_run_is_a_module_that_its_hooks_have_built(tmp_path: Path, hook: str) -> None:
    building = "self.net = nn.Sequential(nn.Linear(1, 3), nn.Linear(3, 1))"
    text = HEAD + NET.replace("batch[0][:, 0].tolist()", "None") + OWN_LOADER
    text = text.replace("self.net = nn.Sequential(nn.Linear(1, width), nn.Linear(width, 1))", "self.net = None")
    with clean_imports():
        reference = str(write(tmp_path, f"{text}    def {hook}: {building}\n"))
        target = resolve(reference).shape_run(Config(values=defaults()), "cpu", lambda name: None, shapes_vary=False)
        arms = [target.training({}, 1) for _ in range(2)]

    assert [len(list(arm.tensors())) for arm in arms] == [4, 4]


STREAM = """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self): yield from ROWS
"""


@pytest.mark.parametrize("length", ["", "    def __len__(self): return 64\n"])
def test_an_iterable_dataset_is_read_in_its_own_order(tmp_path: Path, length: str) -> None:
    text = HEAD + STREAM + length + NET + OWN_LOADER.replace("ROWS, batch_size=16, shuffle=True", "Stream(), 16")

    assert inspect(tmp_path, text).baseline == {"batch_size": 16, "num_workers": 0}
    session = start(tmp_path, text, batch_size=2, num_workers=0)
    session.train(watch(2))
    assert session.model.seen == [([0.0, 1.0], 0), ([2.0, 3.0], 1)]


def test_what_only_workers_take_is_left_out_without_them(tmp_path: Path) -> None:
    asked = "num_workers=1, multiprocessing_context='fork', timeout=60, shuffle=True"
    text = COMPLETE.replace("shuffle=True", asked)

    start(tmp_path, text, batch_size=2, num_workers=0).train(watch(1))
    assert start(tmp_path, text, batch_size=2, num_workers=1).source.loader.timeout == 60


def test_a_random_sampler_of_the_users_own_class_is_kept(tmp_path: Path) -> None:
    buckets = """
class Buckets(RandomSampler):
    def __iter__(self): return iter(range(8, 64))
"""
    text = HEAD + buckets + NET + OWN_LOADER.replace("shuffle=True", "sampler=Buckets(ROWS)")
    session = start(tmp_path, text, batch_size=2)

    session.train(watch(1))

    assert session.model.seen == [([8.0, 9.0], 0)]


MANY = NET.replace("return [descent], [torch.optim.lr_scheduler.StepLR(descent, 1)]", "return [descent, descent]")
ASKING = NET.replace("self.seen.append", "asks(self); self.seen.append")
STEPS = NET.replace("lr=0.5", "lr=asks(self)")
ELSEWHERE = "def asks(module): return 1 / module.trainer.estimated_stepping_batches\n"
NONE = NET.replace('return {"loss": ', "return {'losses': ")
CUT = "    def train_dataloader(self): return DataLoader(ROWS, batch_sampler=Mine(RandomSampler(ROWS), 4, False))\n"
LISTED = "    def train_dataloader(self): return [1, 2]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MANY + OWN_LOADER, "Net.configure_optimizers returned 2 optimizers, and Net does not step them"),
        (ELSEWHERE + ASKING + OWN_LOADER, "Net.training_step uses self.trainer, but autotune's loop"),
        (ELSEWHERE + STEPS + OWN_LOADER, "Net.configure_optimizers uses self.trainer, but autotune's loop"),
        (NONE + OWN_LOADER, "Net.training_step returned no loss."),
        ("class Mine(BatchSampler): pass\n" + NET + CUT, "has a batch_sampler of its own"),
        (NET + LISTED, "Return one DataLoader, or write dataloader(batch_size, num_workers) beside it."),
        (NET.replace("width=3", "width"), 'Net() asks for "width"'),
    ],
)
def test_what_the_loop_of_autotune_cannot_train_is_told_with_what_to_do(tmp_path: Path, text: str, said: str) -> None:
    error = str(refused(tmp_path, HEAD + text))

    assert said in error
    assert any(word in error for word in ("Write ", "Return ", "write ", "Give ", "Set "))


@pytest.mark.slow
def test_two_ranks_learn_what_one_process_learns(tmp_path: Path) -> None:
    text = COMPLETE.replace("shuffle=True", "shuffle=False").replace("ROWS = ", "torch.manual_seed(0)\nROWS = ")
    code = f"""
TARGET = {text!r}
for strategy in (None, "zero2", "fsdp") if SIZE > 1 else (None,):
    training = start(HERE, TARGET, batch_size=8 * 2 // SIZE, strategy=strategy)
    training.train(watch(3))
    weights = [one.full_tensor() if hasattr(one, "full_tensor") else one for one in training.model.parameters()]
    tell(**{{str(strategy): torch.cat([one.detach().flatten() for one in weights]).tolist()}})
"""
    (alone,) = on_ranks(tmp_path, code, size=1)
    first, second = on_ranks(tmp_path, code)

    assert first == second
    for strategy, learned in first.items():
        assert learned == pytest.approx(alone["None"], abs=1e-5), strategy
