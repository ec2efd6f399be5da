"""What a user's file may hold, and how it is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autotune.core.records import Limit
from autotune.errors import TargetError
from autotune.targets import resolve
from tests.targets_support import COMPLETE, DATASET, HEAD, MODEL, inspect, look, refused, start, watch, write


def test_six_lines_are_enough(tmp_path: Path) -> None:
    facts = inspect(tmp_path, COMPLETE)

    assert facts.name == "Linear"
    assert facts.parameter_count == 10
    assert facts.dataset_samples == 100
    assert facts.baseline is None
    assert facts.step is not None
    assert facts.step.parameters_with_gradient == facts.step.trainable_parameters == 2


def test_everything_inferred_is_said_with_the_line_that_replaces_it(tmp_path: Path) -> None:
    facts = inspect(tmp_path, COMPLETE)

    found = {one.name: one for one in facts.check_lines}
    assert found["loss"].text == "cross_entropy, inferred from output (32, 2) and target int64 (32,)"
    assert found["loss"].inferred
    assert found["loss"].override == "loss(model, batch)"
    assert found["optimizer"].text == "SGD(lr=0.01, momentum=0.9)"
    assert found["optimizer"].inferred
    assert found["optimizer"].override == "optimizer(params)"
    assert found["data"].text == "TensorDataset, 100 samples; a batch is (float32 (32, 4), int64 (32,))"
    assert not found["model"].inferred


def test_what_is_written_is_not_inferred(tmp_path: Path) -> None:
    written = (
        "def loss(model, batch):\n    x, y = batch\n    return model(x).square().mean()\n"
        "def optimizer(params): return torch.optim.Adam(params, lr=0.5)\n"
    )

    facts = inspect(tmp_path, COMPLETE + written)

    found = {one.name: one for one in facts.check_lines}
    assert not found["loss"].inferred
    assert not found["optimizer"].inferred
    assert found["optimizer"].text == "Adam(lr=0.5)"


def test_what_has_another_name_than_agreed_is_said(tmp_path: Path) -> None:
    text = COMPLETE + (
        "def get_optimizer(): return torch.optim.AdamW(model().parameters())\n"
        "def train_sampler(): return range(100)\n"
        "val_dataset = dataset()\nbatch_size = 64\ncriterion = nn.CrossEntropyLoss\n"
    )

    facts = inspect(tmp_path, text)

    found = {one.name: one for one in facts.check_lines if one.inferred}
    assert found["optimizer"].text == "SGD(lr=0.01, momentum=0.9); get_optimizer is not read"
    assert found["sampler"].text == "shuffled; train_sampler is not read"
    assert found["validation"].text == "none; val_dataset is not read"
    assert found["validation"].override == "validation = val_dataset"
    assert found["baseline"].text == "assumed; batch_size is not read"
    assert found["baseline"].override == 'baseline = {"batch_size": batch_size}'


def test_a_criterion_beside_the_models_own_loss_is_left_to_the_model(tmp_path: Path) -> None:
    text = HEAD + (
        "criterion = nn.CrossEntropyLoss()\n"
        "class Net(nn.Linear):\n"
        "    def forward(self, x, labels): return {'loss': criterion(super().forward(x), labels)}\n"
        "def model(): return Net(4, 2)\ndataset = [{'x': torch.randn(4), 'labels': 1}] * 99\n"
    )

    found = {one.name: one.text for one in inspect(tmp_path, text).check_lines}

    assert found["loss"] == "the model's own .loss, inferred from a batch with x, labels; criterion is not read"


def test_what_a_loader_of_its_own_uses_needs_no_agreed_name(tmp_path: Path) -> None:
    text = MODEL + (
        "def collate_fn(samples): return torch.utils.data.default_collate(samples)\ntrain_sampler = range(64)\n"
        "def dataloader(batch_size): return torch.utils.data.DataLoader(\n"
        "    [(torch.randn(4), 1)] * 64, batch_size, sampler=train_sampler, collate_fn=collate_fn)\n"
    )

    facts = inspect(tmp_path, text)

    assert "sampler" not in [one.name for one in facts.check_lines]


def test_a_loss_beside_a_builder_that_gives_none_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, COMPLETE + "def build(): return model(), dataset()\ndef loss(model, batch): ...\n")

    with pytest.raises(TargetError, match=r"model.py has loss, and build does not give it.*the key loss as well"):
        look(f"{path}:build")


LAYOUTS = {
    "x, y": "pair",
    "[x, y]": "pair",
    "x": "tensor",
    "(x, y, y)": "tuple",
    "({'x': x}, y)": "tuple",
    "(x,)": "tuple",
    "{'x': x, 'y': y}": "dict",
    "types.SimpleNamespace(x=x)": "other",
}


@pytest.mark.parametrize("batch", LAYOUTS)
def test_how_a_batch_looks_is_a_fact_about_the_target(tmp_path: Path, batch: str) -> None:
    text = MODEL + (
        "import types\n"
        f"def batch(batch_size):\n    x, y = torch.randn(batch_size, 4), torch.zeros(batch_size)\n    return {batch}\n"
        "def loss(model, batch): return model(torch.randn(1, 4)).sum()\n"
    )

    facts = inspect(tmp_path, text)

    assert (facts.data, facts.batch_layout) == ("batch", LAYOUTS[batch])
    assert not (facts.has_collate or facts.has_sampler)


@pytest.mark.parametrize("order", ["", "def sampler(dataset): return range(100)\n"])
@pytest.mark.parametrize("join", ["", "def collate(samples): return torch.utils.data.default_collate(samples)\n"])
def test_a_collate_and_a_sampler_of_its_own_are_facts_about_the_target(tmp_path: Path, order: str, join: str) -> None:
    facts = inspect(tmp_path, COMPLETE + order + join)

    assert (facts.has_sampler, facts.has_collate) == (bool(order), bool(join))


def test_objects_do_as_well_as_factories(tmp_path: Path) -> None:
    text = (
        HEAD + "model = nn.Linear(4, 2)\nglobal_batch_size = 64\nbaseline = {'batch_size': 16}\n"
        "dataset = TensorDataset(torch.randn(100, 4), torch.randint(2, (100,)))\n"
    )

    facts = inspect(tmp_path, text)

    assert (facts.name, facts.dataset_samples, facts.global_batch_size) == ("Linear", 100, 64)
    assert facts.baseline == {"batch_size": 16}


def test_settings_may_be_functions(tmp_path: Path) -> None:
    text = (
        COMPLETE + "def global_batch_size(): return 64\ndef baseline(): return {'batch': 16}\n"
        "def space(): return {'batch_size': (8, 64), 'amp_dtype': ['bfloat16', None], 'num_workers': 0}\n"
    )

    facts = inspect(tmp_path, text)

    assert facts.global_batch_size == 64
    assert facts.baseline == {"batch_size": 16}
    assert facts.space == {
        "batch_size": Limit(low=8, high=64),
        "amp_dtype": Limit(values=("bfloat16", None)),
        "num_workers": Limit(values=(0,)),
    }


def test_functions_get_the_arguments_that_they_name(tmp_path: Path) -> None:
    text = (
        HEAD + "def model(knobs, device, batch_size=0, width=2):\n"
        "    assert (knobs['batch_size'], batch_size, device) == (8, 8, 'cpu')\n"
        "    return nn.Linear(4, width)\n" + DATASET
    )

    session = start(tmp_path, text, batch_size=8)

    session.train(recorder := watch(1))
    assert recorder.steps[0].samples == 8


def test_collate_sampler_optimizer_and_samples_may_call_their_one_parameter_anything(tmp_path: Path) -> None:
    text = MODEL + (
        "def dataset(): return [(torch.randn(4), i % 2) for i in range(20)]\n"
        "def collate(b):\n    xs, ys = zip(*b)\n    return torch.stack(xs), torch.tensor(ys)\n"
        "def sampler(data_source): return torch.utils.data.SequentialSampler(data_source)\n"
        "optimizer = torch.optim.AdamW\n"
        "def samples(anything): return 7\n"
    )

    session = start(tmp_path, text, batch_size=8)

    session.train(recorder := watch(1))
    assert recorder.steps[0].samples == 7


def test_setup_runs_before_the_model_is_made(tmp_path: Path) -> None:
    text = (
        HEAD + "ready = []\ndef setup(): ready.append(1)\ndef model():\n    assert ready\n    return nn.Linear(4, 2)\n"
    )

    facts = inspect(tmp_path, text + DATASET)

    assert facts.name == "Linear"


def test_phases_are_told_as_they_begin(tmp_path: Path) -> None:
    opened: list[str] = []
    inspected: list[str] = []

    start(tmp_path, COMPLETE, opened.append)
    resolve(str(tmp_path / "model.py")).inspect("cpu", None, inspected.append)

    assert opened == ["load", "build"]
    assert inspected == ["load", "build", "warm-up"]


def test_only_the_agreed_names_are_special(tmp_path: Path) -> None:
    text = "import random as loss\n" + COMPLETE + "training = 3\ndef helper(x): ...\n"

    facts = inspect(tmp_path, text)

    assert "cross_entropy" in {f.name: f.text for f in facts.check_lines}["loss"]


def test_the_default_batch_is_not_larger_than_the_dataset(tmp_path: Path) -> None:
    text = MODEL + "def dataset(): return TensorDataset(torch.randn(6, 4), torch.randint(2, (6,)))\n"

    facts = inspect(tmp_path, text)

    assert "float32 (6, 4)" in {f.name: f.text for f in facts.check_lines}["data"]


def test_the_builder_after_the_colon_returns_a_pair(tmp_path: Path) -> None:
    text = HEAD + "def build(batch_size): return nn.Linear(4, 2), [(torch.randn(4), 1)] * batch_size\n"
    write(tmp_path, text)

    facts = look(f"{tmp_path / 'model.py'}:build")

    assert (facts.name, facts.dataset_samples) == ("Linear", 32)


def test_the_builder_after_the_colon_returns_the_agreed_names(tmp_path: Path) -> None:
    text = HEAD + "def build():\n    return {'model': lambda: nn.Linear(4, 2), 'batch': lambda batch_size: (\n"
    write(
        tmp_path, text + "        torch.randn(batch_size, 4), torch.randn(batch_size, 2)), 'space': {'workers': 0}}\n"
    )

    facts = look(f"{tmp_path / 'model.py'}:build")

    assert facts.data == "batch"
    assert facts.space == {"num_workers": Limit(values=(0,))}


@pytest.mark.parametrize(
    ("built", "message"),
    [
        ("None", "did you forget return?"),
        ("nn.Linear(4, 2)", "gave Linear: return (model, dataset) or a dict"),
        ("(1, 2, 3)", "gave a tuple of 3 items"),
        ("{'model': nn.Linear(4, 2), 'datset': []}", "Did you mean dataset?"),
        ("{'dataset': [1]}", "has no model. Add the key model"),
    ],
)
def test_a_builder_that_gives_something_else_is_refused(tmp_path: Path, built: str, message: str) -> None:
    write(tmp_path, HEAD + f"def build(): return {built}\n")

    with pytest.raises(TargetError) as caught:
        look(f"{tmp_path / 'model.py'}:build")

    assert message in str(caught.value)


def test_a_missing_builder_is_told_the_nearest_name(tmp_path: Path) -> None:
    write(tmp_path, COMPLETE + "def build(): ...\n")

    with pytest.raises(TargetError, match=r"has no biuld.*Did you mean model.py:build\?"):
        look(f"{tmp_path / 'model.py'}:biuld")


def test_a_module_is_imported_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, COMPLETE, "package_of_mine/layers/train.py")
    monkeypatch.chdir(tmp_path)

    facts = look("package_of_mine.layers.train")

    assert facts.name == "Linear"


def test_a_missing_module_is_not_confused_with_a_missing_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "import nowhere_to_be_found\n", "wanting.py")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(TargetError, match="There is no module absent_module"):
        look("absent_module.train")
    with pytest.raises(TargetError, match=r"wanting.py:1 in <module>: ModuleNotFoundError: .*nowhere_to_be_found"):
        look("wanting")


def test_the_folder_of_the_file_goes_first_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "own", "WIDTH = 2\n", "parts_of_my_model.py")
    write(tmp_path / "other", "", "parts_of_my_model.py")
    monkeypatch.syspath_prepend(tmp_path / "other")

    facts = inspect(tmp_path / "own", "from parts_of_my_model import WIDTH\n" + COMPLETE)

    assert facts.name == "Linear"


def test_a_relative_import_is_told_to_use_the_module(tmp_path: Path) -> None:
    error = refused(tmp_path, "from .parts import WIDTH\n" + COMPLETE)

    assert "relative import" in str(error)
    assert f"{tmp_path.name}.model" in str(error)


def test_a_file_may_be_called_like_a_module_that_is_loaded(tmp_path: Path) -> None:
    import random

    facts = inspect(tmp_path, COMPLETE, name="random.py")

    assert facts.name == "Linear"
    assert sys.modules["random"] is random


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("modell.py", r"There is no file modell.py.*Did you mean model.py\?"),
        ("elsewhere/model.py", "There is no file"),
        (".", "is a folder"),
        ("notes.ipynb", "notes.ipynb is not a Python file"),
        ("python model.py --lr 3", "neither a Python file nor a module"),
        ("m" * 300, "neither a Python file nor a module"),  # longer than a file name may be
    ],
)
def test_a_reference_that_leads_nowhere_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, message: str
) -> None:
    write(tmp_path, COMPLETE)
    (tmp_path / "notes.ipynb").write_text("{}")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(TargetError, match=message):
        resolve(reference)


def test_resolving_imports_no_torch(tmp_path: Path) -> None:
    path = write(tmp_path, COMPLETE)
    program = f"import sys; from autotune.targets import resolve; resolve({str(path)!r}); print('torch' in sys.modules)"

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "False"


def test_a_mere_container_is_called_by_the_name_of_its_file(tmp_path: Path) -> None:
    facts = inspect(tmp_path, HEAD + "def model(): return nn.Sequential(nn.Linear(4, 2))\n" + DATASET)

    assert facts.name == "model"


def test_looking_at_a_target_takes_two_micro_batches_of_a_long_accumulation(tmp_path: Path) -> None:
    counting = COMPLETE + (
        "baseline = {'batch_size': 2, 'gradient_accumulation_steps': 40}\n"
        "def loss(model, batch):\n"
        "    if torch.is_grad_enabled():\n"
        "        with open(__file__ + '.calls', 'a') as calls: calls.write('x')\n"
        "    return nn.functional.cross_entropy(model(batch[0]), batch[1])\n"
    )

    facts = inspect(tmp_path, counting)

    assert (tmp_path / "model.py.calls").read_text() == "xx"
    assert facts.baseline == {"batch_size": 2, "gradient_accumulation_steps": 40}
