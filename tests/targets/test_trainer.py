"""What is done with a Hugging Face Trainer: its own loop, with the arguments of the configuration."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs transformers, which is tuned for and not needed")
pytest.importorskip("accelerate", reason="needs accelerate, which is tuned for and not needed")

from autotune.core.records import Config
from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.core.results import Outcome
from autotune.errors import TargetError
from autotune.knobs import defaults
from autotune.knobs.training_arguments import UNSET, present, training_arguments
from autotune.launch.base import Launcher
from autotune.study import disk
from tests.targets_support import inspect, paired_losses, start, watch, write

pytestmark = pytest.mark.filterwarnings("default")  # what it warns of is not ours to mend

LEFT_ALONE = {"prefetch_factor": None, "persistent_workers": None}  # left to the loader
TEXT = """
import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 2)
        self.batches = []
    def forward(self, x, labels):
        self.batches.append(len(x))
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

class Counting(TrainerCallback):
    ends = 0
    def on_step_end(self, *args, **kwargs): Counting.ends += 1

rows = [{"x": torch.randn(4), "labels": torch.tensor(i % 2)} for i in range(50)]

def trainer():
    arguments = TrainingArguments("out", ARGUMENTS)
    made = Trainer(Net(), arguments, train_dataset=rows, callbacks=[Counting()])
    return made
"""
OWN = "per_device_train_batch_size=4, gradient_accumulation_steps=3, dataloader_num_workers=0, bf16=True, save_steps=1"
COMPLETE = TEXT.replace("ARGUMENTS", OWN)


def test_what_it_trains_with_today_is_the_baseline(tmp_path: Path) -> None:
    facts = inspect(tmp_path, COMPLETE)

    assert facts.baseline == {
        "batch_size": 4, "gradient_accumulation_steps": 3, "num_workers": 0, "amp_dtype": "bfloat16",
        **LEFT_ALONE,
    }  # fmt: skip
    assert facts.owns_loop
    assert facts.framework == "hf"
    assert facts.dataset_samples == 50
    assert [one.name for one in facts.check_lines] == ["model", "data", "loop", "step"]


def test_its_own_arguments_give_way_and_partial_batches_are_left_out(tmp_path: Path) -> None:
    session = start(tmp_path, COMPLETE, batch_size=16, num_workers=0)

    told = watch(4)
    session.train(told)

    assert session._loop._trainer.model.batches == [16] * 4
    assert [step.samples for step in told.steps] == [16] * 4
    assert told.epochs == 1
    assert not session.shapes_vary


def test_a_probe_writes_nothing_and_runs_the_users_own_callbacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = start(tmp_path, COMPLETE)

    session.train(watch(1))

    handler = session._loop._trainer.callback_handler
    assert [type(one).__name__ for one in handler.callbacks] == ["Counting", "Telling"]
    assert handler.callbacks[0].ends == 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["model.py"]


def test_the_schedule_is_that_of_the_users_own_number_of_steps(tmp_path: Path) -> None:
    session = start(tmp_path, TEXT.replace("ARGUMENTS", "max_steps=4, learning_rate=1.0"), batch_size=8)

    rates: list[float] = []
    trainer = session._loop._trainer
    step = trainer.training_step
    trainer.training_step = lambda *given, **named: (rates.append(trainer._get_learning_rate()), step(*given, **named))[
        1
    ]
    session.train(watch(6))

    assert rates == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]


def test_channels_last_reaches_the_batches_too(tmp_path: Path) -> None:
    import torch

    text = COMPLETE.replace(
        "self.batches.append(len(x))",
        "self.batches.append(x.is_contiguous(memory_format=torch.channels_last)); x = x.mean((2, 3))",
    )
    session = start(tmp_path, text.replace("torch.randn(4)", "torch.randn(4, 3, 5)"), batch_size=8, channels_last=True)

    session.train(watch(1))

    assert session._loop._trainer.model.batches == [True]
    assert torch.is_tensor(session._loop._trainer.train_dataset[0]["x"])


STOP = "args[2].should_training_stop = True"
LATER = "arguments.gradient_accumulation_steps = 9; return made"
MOVED = (
    ("def trainer():\n    arguments", "arguments"),
    ("    made =", "def trainer():\n    made ="),
    ("bf16=True", "seed=1"),
)
EARLIER = functools.reduce(lambda text, change: text.replace(*change), MOVED, COMPLETE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (COMPLETE.replace("return made", "return made.model"), "trainer() returned a Net."),
        (COMPLETE.replace("return made", "return None"), "trainer() returned a NoneType."),
        (EARLIER, "trainer() trains with other TrainingArguments than it was given: none arrived."),
        (COMPLETE.replace("return made", LATER), "than it was given: gradient_accumulation_steps."),
        (COMPLETE.replace(OWN, "auto_find_batch_size=True"), "TrainingArguments have auto_find_batch_size, which"),
        (
            COMPLETE.replace(OWN, "fsdp='full_shard'"),
            "TrainingArguments have fsdp, which trains on several devices. A probe needs one device and a batch size "
            "that stays. Leave fsdp out, or tune the command that starts its ranks: autotune search -- torchrun "
            "--nproc-per-node 2 train.py",
        ),
        (
            COMPLETE.replace(OWN, "deepspeed={'zero_optimization': {'stage': 2}}"),
            "TrainingArguments have deepspeed, which trains on several devices by DeepSpeed. A probe needs one device "
            "and a batch size that stays. Leave deepspeed out.",
        ),
        (
            COMPLETE.replace("train_dataset=rows", "train_dataset=rows[:2]"),
            "train_dataset has 2 samples, one step needs 8 samples.",
        ),
        (COMPLETE.replace("Counting.ends += 1", STOP), "ended its training before it was measured"),
        (COMPLETE.replace("train_dataset=rows", "train_dataset=None"), "training requires a train_dataset"),
    ],
)
def test_what_cannot_be_probed_is_told_with_what_to_do(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises((TargetError, ValueError), match=re.escape(said)):
        start(tmp_path, text, batch_size=8).train(watch(2))


def test_a_version_without_what_a_probe_needs_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    monkeypatch.delattr(transformers.Trainer, "set_initial_training_values", raising=False)

    with pytest.raises(TargetError) as caught:
        inspect(tmp_path, COMPLETE)

    assert str(caught.value) == (
        f"A probe of a Trainer needs transformers 4.49 or later, and {transformers.__version__} is installed. Its loop "
        "sets the number of epochs where no probe can. Install a later one, or tune the command that runs your "
        "Trainer: autotune search -- python train.py"
    )


def test_a_last_step_of_fewer_micro_batches_is_left_out(tmp_path: Path) -> None:
    session = start(tmp_path, COMPLETE, batch_size=8, gradient_accumulation_steps=4, num_workers=0)

    told = watch(3)
    session.train(told)

    assert [step.samples for step in told.steps] == [32] * 3
    assert [step.micro_batches for step in told.steps] == [4] * 3
    assert told.epochs == 2
    with pytest.raises(TargetError, match="train_dataset has 50 samples, one step needs 8 batches of 8"):
        start(tmp_path, COMPLETE, batch_size=8, gradient_accumulation_steps=8)


def test_a_parser_in_trainer_sees_a_command_line_without_arguments(tmp_path: Path, monkeypatch) -> None:
    from_parser = "HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()[0]"
    text = "from transformers import HfArgumentParser\n" + TEXT.replace(
        'TrainingArguments("out", ARGUMENTS)', from_parser
    )
    monkeypatch.setattr("sys.argv", ["autotune", "--lifeline", "4"])

    assert inspect(tmp_path, text).baseline["batch_size"] == 8
    with pytest.raises(TargetError, match=r"ended the process while trainer\(\) ran \(SystemExit: 3\)"):
        inspect(tmp_path, COMPLETE.replace("return made", "raise SystemExit(3)"))


OWN_LOADER = """
from torch.utils.data import DataLoader
class Own(Trainer):
    def get_train_dataloader(self): return DataLoader(rows, batch_size=4, collate_fn=self.data_collator)
"""
OWN_COLLATOR = """
from transformers import default_data_collator
def four(samples): return default_data_collator(samples[:4])
"""


@pytest.mark.parametrize(
    "text",
    [
        COMPLETE.replace("made = Trainer", "made = Own") + OWN_LOADER,
        COMPLETE.replace("train_dataset=rows", "train_dataset=rows, data_collator=four") + OWN_COLLATOR,
    ],
)
def test_batches_of_another_size_than_was_asked_for_are_not_measured(tmp_path: Path, text: str) -> None:
    assert inspect(tmp_path, text).baseline["batch_size"] == 4  # which is what arrives
    for asked in (8, 32):
        with pytest.raises(TargetError, match=f"was asked for batches of {asked} samples, and 4 arrived: .x: float32"):
            start(tmp_path, text, batch_size=asked).train(watch(2))


TIME_FIRST = (
    COMPLETE.replace("self.net(x)", "self.net(x.t())")
    .replace("labels):", "labels, mask=None):")
    .replace("train_dataset=rows", "train_dataset=rows, data_collator=time_first")
    + """
from transformers import default_data_collator
def time_first(samples):
    made = default_data_collator(samples)
    return {"x": made["x"].t().contiguous(), "labels": made["labels"]}
"""
)


def test_batches_whose_time_steps_come_first_are_measured(tmp_path: Path) -> None:
    session = start(tmp_path, TIME_FIRST, batch_size=16)

    session.train(told := watch(2))

    assert session._loop._trainer.model.batches == [4, 4]  # time steps
    assert [step.samples for step in told.steps] == [16, 16]


def test_time_first_batches_that_do_not_show_their_samples_are_refused_with_the_way_out(tmp_path: Path) -> None:
    masked = TIME_FIRST.replace('made["labels"]}', 'made["labels"], "mask": torch.ones(4)}')

    with pytest.raises(TargetError, match=r"16 samples, and 4 arrived: .*where time steps come first, give every ten"):
        start(tmp_path, masked, batch_size=16).train(watch(2))


def test_the_baseline_is_that_of_the_arguments_it_trains_with(tmp_path: Path) -> None:
    teacher = '    teacher = TrainingArguments("teacher", per_device_train_batch_size=2)\n    made ='
    changed = "    arguments.per_device_train_batch_size = 16\n    made ="

    for more, size in ((teacher, 4), (changed, 16)):
        facts = inspect(tmp_path, COMPLETE.replace("    made =", more))
        assert facts.baseline == {
            "batch_size": size, "gradient_accumulation_steps": 3, "num_workers": 0, "amp_dtype": "bfloat16",
            **LEFT_ALONE,
        }  # fmt: skip
    config = Config(values=defaults() | {"batch_size": 8})
    assert inspect(tmp_path, COMPLETE.replace("    made =", teacher), config).baseline["batch_size"] == 4


def test_other_arguments_made_meanwhile_are_not_taken_for_its_own(tmp_path: Path) -> None:
    decoy = EARLIER.replace("    made =", '    TrainingArguments("decoy")\n    made =')

    with pytest.raises(TargetError, match="than it was given: none arrived"):
        inspect(tmp_path, decoy.replace("seed=1", "use_cpu=True"))


def test_a_configuration_and_what_is_read_back_of_it_agree() -> None:
    for dtype in (None, "bfloat16", "float16"):
        words = {None: {}, "bfloat16": {"bf16": True}, "float16": {"fp16": True}}[dtype]
        loader = {"batch_size": 8, "num_workers": 2, "pin_memory": False, "drop_last": True}

        assert present(UNSET | training_arguments(loader, 4, words)) == {
            "batch_size": 8, "gradient_accumulation_steps": 4, "num_workers": 2, "amp_dtype": dtype,
            **LEFT_ALONE,
        }  # fmt: skip


def test_a_probe_measures_it_as_a_process_of_its_own(tmp_path: Path, forking_launcher: Launcher) -> None:
    target = write(tmp_path, COMPLETE)
    config = Config(values=defaults() | {"batch_size": 8, "gradient_accumulation_steps": 2})
    budget = ProbeBudget(min_seconds=0.3, max_seconds=0.6, min_warmup_seconds=0.1)

    (tmp_path / "probe").mkdir()
    result = forking_launcher.run(
        ProbeRequest(target=str(target), config=config, device="cpu", budget=budget), tmp_path / "probe"
    )

    assert result.outcome is Outcome.OK, result.failure
    assert result.measurement is not None
    assert set(result.measurement.samples) == {16 * result.measurement.steps_per_block}
    assert result.measurement.compute_only is None and result.measurement.loader_only is None
    assert result.measurement.samples_per_second > 0


def test_its_losses_in_half_precision_are_paired_with_those_in_full(tmp_path: Path, forking_launcher: Launcher) -> None:
    losses = paired_losses(forking_launcher, write(tmp_path, COMPLETE), disk.make(tmp_path / "pairs"))

    assert losses["perturbed"] == pytest.approx(losses["reference"], rel=1e-4)
    assert losses["candidate"] == pytest.approx(losses["reference"], rel=2e-2)
    assert losses["candidate"] != losses["reference"]


def test_the_update_of_its_optimizer_is_found_and_set(tmp_path: Path) -> None:
    facts = inspect(tmp_path, COMPLETE)
    session = start(tmp_path, COMPLETE, batch_size=4, fused_optimizer="foreach")
    session.train(watch(1))

    assert facts.optimizer is not None and "foreach" in facts.optimizer.possible
    assert facts.found == {"fused_optimizer": "fused"}  # what transformers 5 writes by itself
    assert session.observed().optimizer_implementation == "foreach"
