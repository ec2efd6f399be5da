"""Settings that a script writes into its own TrainingArguments are tuned where it makes them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.core.records import Config, TargetFacts
from autotune.errors import TargetError
from autotune.knobs import defaults, plan_of
from autotune.knobs.training_arguments import UNSET, rewritten
from autotune.targets import resolve
from autotune.targets.base import Step, check_effect
from autotune.targets.commands import hygiene
from autotune.testing.target_contract import clean_imports
from tests.targets.commands.test_watched_commands import command, inspect
from tests.targets_support import watch

# Of transformers, what settings are written into: present only where it is imported after the hooks are there.
STAND_IN = """
from dataclasses import dataclass

@dataclass
class TrainingArguments:
    output_dir: str = "trainer_output"
    per_device_train_batch_size: int = 8
    gradient_accumulation_steps: int = 1
    dataloader_num_workers: int = 0
    dataloader_prefetch_factor: int | None = None
    dataloader_persistent_workers: bool = False
    bf16: bool = False
    fp16: bool = False
    gradient_checkpointing: bool = False
    def __post_init__(self):
        self.mixed_precision = "bf16" if self.bf16 else "no"
"""
LOOP = """
from dataclasses import dataclass
from transformers.training_args import TrainingArguments

@dataclass
class OwnConfig(TrainingArguments):
    def __post_init__(self):
        self.gradient_accumulation_steps = self.gradient_accumulation_steps or 1
        super().__post_init__()

def train(args, size=None):
    every = args.gradient_accumulation_steps
    loader = batches(size or args.per_device_train_batch_size, num_workers=args.dataloader_num_workers)
    for number, (x, y) in enumerate(loader, 1):
        with torch.autocast("cpu", torch.bfloat16, enabled=args.mixed_precision == "bf16"):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if number % every == 0:
            optimizer.step()
            optimizer.zero_grad()
"""
SCRIPT = LOOP + 'train(OwnConfig("out", per_device_train_batch_size=4, gradient_accumulation_steps=2))\n'
TODAY = {"batch_size": 4, "gradient_accumulation_steps": 2, "num_workers": 0, "amp_dtype": None}
WRITTEN = tuple(TODAY)


@pytest.fixture(autouse=True)
def contained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a script is to write goes into a folder of the test."""
    monkeypatch.setenv(hygiene.OUTPUT, str(tmp_path / "scratch"))


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package `transformers` that has nothing but TrainingArguments."""
    for name in [one for one in sys.modules if one.partition(".")[0] == "transformers"]:
        monkeypatch.delitem(sys.modules, name)
    package = tmp_path / "site" / "transformers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "training_args.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(str(package.parent))


def probe(
    folder: Path, text: str, arguments: str = "", settable: tuple[str, ...] = WRITTEN, **values: Any
) -> list[Step]:
    """The steps of a probe, after it was looked at whether they are what was asked for."""
    config, told = Config(values=defaults() | TODAY | values), watch(3)
    plan = plan_of(config.values, "cpu")
    plan.settable = settable
    with clean_imports():
        session = resolve(command(folder, text, arguments)).open(config, plan, lambda phase: None)
        session.train(told)
    check_effect(session, config.values)
    return told.steps


def shapes(taken: list[Step]) -> set[tuple[int, int]]:
    return {(step.samples, step.micro_batches) for step in taken}


def settings(facts: TargetFacts) -> dict[str, Any]:
    assert facts.baseline is not None
    return {name: facts.baseline[name] for name in TODAY}


@pytest.mark.usefixtures("stand_in")
class TestAScriptThatWritesThem:
    def test_what_it_writes_is_the_baseline_and_can_be_set(self, tmp_path):
        facts = inspect(tmp_path, SCRIPT)

        assert settings(facts) == TODAY
        assert facts.written == (*WRITTEN[:2], "amp_dtype", "num_workers", "prefetch_factor", "persistent_workers")
        assert set(facts.written) <= set(facts.settable or ())
        assert facts.framework == "hf"
        (told,) = (one.text for one in facts.check_lines if one.name == "arguments")
        assert told == (
            "TrainingArguments of the script: batch, accum, precision, workers, prefetch, persist are set as it makes "
            "them"
        )

    def test_a_probe_trains_with_other_values(self, tmp_path):
        taken = probe(
            tmp_path, SCRIPT, batch_size=16, gradient_accumulation_steps=1, num_workers=1, amp_dtype="bfloat16"
        )

        assert shapes(taken) == {(16, 1)}

    def test_options_of_its_loader_are_written_with_its_workers(self, tmp_path):
        script = LOOP.replace(
            "num_workers=args.dataloader_num_workers)",
            "num_workers=args.dataloader_num_workers, prefetch_factor=args.dataloader_prefetch_factor, "
            "persistent_workers=args.dataloader_persistent_workers)",
        )
        script += "train(OwnConfig(per_device_train_batch_size=4, gradient_accumulation_steps=2))\n"
        settable = (*WRITTEN, "prefetch_factor", "persistent_workers")

        taken = probe(tmp_path, script, "", settable, num_workers=1, prefetch_factor=4, persistent_workers=False)

        assert shapes(taken) == {(8, 2)}
        with pytest.raises(TargetError, match="was given 4 batches ahead for each worker and trained with"):
            probe(tmp_path, script, "", WRITTEN, num_workers=1, prefetch_factor=4)

    def test_what_cannot_be_set_stays_as_it_was_written(self, tmp_path):
        config = Config(values=defaults() | TODAY | {"batch_size": 16})

        assert shapes(probe(tmp_path, SCRIPT, settable=(), **TODAY)) == {(8, 2)}
        with pytest.raises(TargetError, match="was given batch_size 16 and trained with batch_size 4"):
            probe(tmp_path, SCRIPT, settable=(), **config.values)

    def test_what_the_command_carries_is_carried_by_it(self, tmp_path):
        script = LOOP + "train(OwnConfig(per_device_train_batch_size=int(sys.argv[2])))\n"
        arguments = "--batch-size {batch_size=4}"

        facts = inspect(tmp_path, script, arguments)

        assert "batch_size" not in facts.written and "gradient_accumulation_steps" in facts.written
        assert "batch_size" in (facts.settable or ())
        taken = probe(tmp_path, script, arguments, batch_size=16, gradient_accumulation_steps=2)
        assert shapes(taken) == {(32, 2)}

    def test_where_arguments_make_them_nothing_else_sets_them(self, tmp_path):
        script = LOOP + "train(OwnConfig(per_device_train_batch_size=int(sys.argv[2])))\n"

        facts = inspect(tmp_path, script, "--per_device_train_batch_size {batch_size=4}")

        assert facts.written == ()
        assert "amp_dtype" not in (facts.settable or ())

    def test_what_a_training_does_not_follow_is_not_tuned(self, tmp_path):
        facts = inspect(tmp_path, LOOP + "train(OwnConfig(per_device_train_batch_size=4), size=16)\n")

        assert settings(facts) == {**TODAY, "batch_size": 16, "gradient_accumulation_steps": 1}
        assert "batch_size" not in facts.written

    def test_a_value_that_the_script_changes_afterwards_voids_the_probe(self, tmp_path):
        script = LOOP + "args = OwnConfig()\nargs.per_device_train_batch_size = 4\ntrain(args)\n"

        with pytest.raises(TargetError, match="was given batch_size 16 and trained with batch_size 4"):
            probe(tmp_path, script, batch_size=16, gradient_accumulation_steps=1)

    def test_what_a_trainer_writes_goes_into_the_folder_of_the_probe(self, tmp_path):
        noted = f"__import__('pathlib').Path({str(tmp_path / 'said')!r}).write_text(args.output_dir)"
        script = f"{LOOP}args = OwnConfig('out')\n{noted}\n"

        facts = inspect(tmp_path, script + "train(args)\n")

        assert (tmp_path / "said").read_text() == str(tmp_path / "scratch")
        assert "outputs" not in [one.name for one in facts.check_lines]


def test_only_what_differs_is_to_be_written():
    values = {**TODAY, "activation_checkpointing": False}

    assert rewritten(values, values) == {}
    assert rewritten({**values, "num_workers": 2}, values) == {
        "dataloader_num_workers": 2, "dataloader_persistent_workers": True, "dataloader_prefetch_factor": 2,
    }  # fmt: skip
    assert rewritten(values, {**values, "amp_dtype": "bfloat16", "activation_checkpointing": True}) == {
        "gradient_checkpointing": False, "bf16": UNSET["bf16"],
    }  # fmt: skip


REAL = """
import os
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)
config = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
)
rows = [{"input_ids": torch.randint(50, (8,)), "labels": number % 2} for number in range(64)]
arguments = TrainingArguments(
    output_dir="out", per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=50,
    report_to="none", disable_tqdm=True, logging_strategy="no", GIVEN
)
Trainer(BertForSequenceClassification(config), arguments, train_dataset=rows).train()
"""
USES_CPU = REAL.replace("GIVEN", "use_cpu=True")
ALL = (*WRITTEN, "activation_checkpointing")


@pytest.mark.filterwarnings("default")  # what it warns of is not ours to mend
class TestATrainerOfTransformers:
    @pytest.fixture(autouse=True)
    def transformers(self) -> Any:
        pytest.importorskip("accelerate", reason="needs accelerate, which is tuned for and not needed")
        found = pytest.importorskip("transformers", reason="needs transformers, which is tuned for and not needed")
        assert found.TrainingArguments  # whose module is imported now, and not by a script that is forgotten
        return found

    def test_all_that_its_script_writes_can_be_set(self, tmp_path):
        facts = inspect(tmp_path, USES_CPU)

        assert settings(facts) == TODAY
        assert set(facts.written) == {*ALL, "prefetch_factor", "persistent_workers"}
        assert not (tmp_path / "out").exists()

    def test_a_probe_trains_with_other_values(self, tmp_path, transformers):
        made = transformers.TrainingArguments.__post_init__
        values = {"batch_size": 8, "gradient_accumulation_steps": 1, "num_workers": 1, "amp_dtype": "bfloat16"}

        taken = probe(tmp_path, USES_CPU, settable=ALL, activation_checkpointing=True, **values)

        assert shapes(taken) == {(8, 1)}
        assert transformers.TrainingArguments.__post_init__ is made

    def test_precision_that_it_refuses_on_a_cpu_is_not_tuned(self, tmp_path, monkeypatch, transformers):
        monkeypatch.setattr(transformers.training_args, "is_torch_bf16_gpu_available", lambda: False)
        monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "cpu")

        facts = inspect(tmp_path, REAL.replace("GIVEN", ""))

        assert "amp_dtype" not in (*facts.written, *(facts.settable or ()))
        (told,) = (one for one in facts.check_lines if one.name == "precision")
        assert "transformers takes bf16 only with use_cpu=True in TrainingArguments" in told.text

    def test_a_batch_size_that_it_finds_by_itself_is_refused(self, tmp_path):
        with pytest.raises(TargetError, match="trains with auto_find_batch_size, which changes the batch size"):
            inspect(tmp_path, REAL.replace("GIVEN", "use_cpu=True, auto_find_batch_size=True"))
