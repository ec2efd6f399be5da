"""What a user's file may hold, and what is said about every mistake in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from targets_support import COMPLETE, DATASET, HEAD, MODEL, inspect, look, refused, start, watch, write

from autotune.errors import TargetError
from autotune.records import Limit
from autotune.targets import resolve


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

    found = {finding.name: finding for finding in facts.findings}
    assert found["loss"].text == "cross_entropy, inferred from output (32, 2) and target int64 (32,)"
    assert found["loss"].inferred
    assert found["loss"].override == "loss(model, batch)"
    assert found["optimizer"].text == "SGD(lr=0.1, momentum=0.9)"
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

    found = {finding.name: finding for finding in facts.findings}
    assert not found["loss"].inferred
    assert not found["optimizer"].inferred
    assert found["optimizer"].text == "Adam(lr=0.5)"


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

    assert "cross_entropy" in {f.name: f.text for f in facts.findings}["loss"]


def test_the_default_batch_is_not_larger_than_the_dataset(tmp_path: Path) -> None:
    text = MODEL + "def dataset(): return TensorDataset(torch.randn(6, 4), torch.randint(2, (6,)))\n"

    facts = inspect(tmp_path, text)

    assert "float32 (6, 4)" in {f.name: f.text for f in facts.findings}["data"]


# Table 1.3 of the contract's design: the mistake, and what its message has to hold.
MISTAKES = {
    "trains on import": (
        COMPLETE + "m = model(); o = torch.optim.SGD(m.parameters())\n"
        "while True: m(torch.randn(1, 4)).sum().backward(); o.step()\n",
        ["model.py trains while being imported (an optimizer stepped)", 'if __name__ == "__main__":'],
    ),
    "exits on import": (
        "import argparse\np = argparse.ArgumentParser()\np.error = lambda m: exit(2)\np.add_argument('data')\n"
        "p.parse_args()\n" + COMPLETE,
        ["model.py ended the process while being imported (SystemExit: 2)"],
    ),
    "no model": (HEAD + "def get_model(): return nn.Linear(4, 2)\n", ["no model. Did you mean get_model → model?"]),
    "misspelt model": (HEAD + "def modle(): return nn.Linear(4, 2)\n", ["no model. Did you mean modle → model?"]),
    "only a class": (
        HEAD + "class Net(nn.Module): pass\n" + DATASET,
        ["Found nn.Module class Net: add  def model(): return Net()"],
    ),
    "nothing at all": ("x = 1\n", ["model.py has no model. autotune looks for that name."]),
    "model returns None": (
        HEAD + "def model(): nn.Linear(4, 2)\n" + DATASET,
        ["model() returned None (did you forget return?)"],
    ),
    "model returns something else": (
        HEAD + "def model(): return [nn.Linear(4, 2)]\n" + DATASET,
        ["model() returned a list: return an nn.Module."],
    ),
    "required argument": (
        HEAD + "def model(hidden): return nn.Linear(4, hidden)\n" + DATASET,
        [
            'model() asks for "hidden"; autotune can pass only batch_size, device, knobs, num_workers. '
            'Give "hidden" a default.'
        ],
    ),
    "frozen model": (
        HEAD + "def model(): return nn.Linear(4, 2).requires_grad_(False)\n" + DATASET,
        ["without a trainable parameter"],
    ),
    "lazy model": (
        HEAD + "def model(): return nn.LazyLinear(2)\n" + DATASET,
        ["whose weight has no shape yet", "Run one batch through it in model()."],
    ),
    "no data": (
        MODEL,
        ["model.py has a model but no data: add dataset() (tunes workers too) or batch(batch_size) (synthetic)"],
    ),
    "data under another name": (
        MODEL + "def get_dataset(): return [1]\n",
        ["no data. Did you mean get_dataset → dataset()?"],
    ),
    "two kinds of data": (
        COMPLETE + "def batch(batch_size): return torch.randn(batch_size, 4)\n",
        ["model.py has dataset and batch", "exactly one of"],
    ),
    "dataset returns a DataLoader": (
        MODEL + "def dataset(): return torch.utils.data.DataLoader([1, 2])\n",
        ["return its dataset (autotune sets batch size and workers)", "dataloader(batch_size, num_workers)."],
    ),
    "dataset is empty": (MODEL + "dataset = []\n", ["dataset() has 0 samples"]),
    "dataset returns its splits": (
        MODEL + "def dataset(): return {'train': [1], 'test': [2]}\n",
        ["dataset() returned a dict of train, test: return one of them."],
    ),
    "dataset returns bare tensors": (
        MODEL + "def dataset(): return torch.randn(9, 4), torch.zeros(9)\n",
        ["return torch.utils.data.TensorDataset(*tensors)"],
    ),
    "dataset is a generator": (
        MODEL + "def dataset():\n    for i in range(9): yield torch.randn(4), 1\n",
        ["dataset() returned a generator, which ends after one epoch"],
    ),
    "dataset has no length": (
        MODEL + "class D:\n    def __getitem__(self, i): return 1\ndef dataset(): return D()\n",
        ["dataset() returned a D, which is no dataset"],
    ),
    "dataloader returns no iterable": (
        MODEL + "def dataloader(batch_size): return 3\n",
        ["dataloader() returned a int: return an iterable of batches."],
    ),
    "dict batch without labels": (
        HEAD + "class Net(nn.Linear):\n"
        "    def forward(self, input_ids, attention_mask): return {'logits': super().forward(input_ids)}\n"
        "def model(): return Net(4, 2)\n"
        "dataset = [{'input_ids': torch.randn(4), 'attention_mask': torch.ones(4)}] * 9\n",
        ["the model returned no .loss for keys input_ids, attention_mask: add labels, or write loss(model, batch)."],
    ),
    "batch of three": (
        MODEL + "dataset = [(torch.randn(4), 1, 2)] * 9\n",
        ["batch is a list of 3 items: write loss(model, batch)."],
    ),
    "loss not scalar": (
        COMPLETE + "def loss(model, batch): return model(torch.randn(2, 4))\n",
        ["loss returned Tensor(2, 2): return one scalar."],
    ),
    "loss is a number": (
        COMPLETE + "def loss(model, batch): return 1.5\n",
        ["loss returned float", "return one scalar tensor."],
    ),
    "loss returns nothing": (COMPLETE + "def loss(model, batch): ...\n", ["did you forget return?"]),
    "loss without gradient": (
        COMPLETE + "def loss(model, batch): return model(batch[0]).sum().detach()\n",
        ["the loss has no gradient (no trainable parameter, or no_grad / detach)."],
    ),
    "loss is a module": (
        COMPLETE + "loss = nn.CrossEntropyLoss()\n",
        ["loss is a CrossEntropyLoss object, and autotune calls loss(model, batch)"],
    ),
    "loss takes output and target": (
        COMPLETE + "def loss(output, target): ...\n",
        ['loss() asks for "output"; autotune can pass only batch, batch_size, device, knobs, model, num_workers.'],
    ),
    "ragged samples": (
        MODEL + "dataset = [(torch.randn(1 + i % 2, 4), 1) for i in range(9)]\ndef sampler(dataset): return range(9)\n",
        ["samples 0 and 1 have shapes (1, 4) and (2, 4): write collate(samples), or pad."],
    ),
    "samples of an unknown type": (
        MODEL + "dataset = [(object(), 1)] * 9\n",
        ["samples cannot be joined into a batch", "write collate(samples)."],
    ),
    "ambiguous loss": (
        HEAD + "def model(): return nn.Conv1d(4, 6, 1)\n"
        "dataset = TensorDataset(torch.randn(9, 4, 6), torch.randint(6, (9, 6)))\n"
        "baseline = {'batch_size': 2}\n",
        ["cross_entropy fits two ways for output (2, 6, 6) and target (2, 6): write loss(model, batch)."],
    ),
    "dataset smaller than the global batch": (
        COMPLETE + "global_batch_size = 1024\n",
        ["dataset has 100 samples, the held global batch is 1024", "Lower --global-batch"],
    ),
    "dataset smaller than the batch": (
        COMPLETE + "baseline = {'batch_size': 128}\n",
        ["dataset has 100 samples, one batch needs 128"],
    ),
    "optimizer returns something else": (
        COMPLETE + "def optimizer(params): return list(params)\n",
        ["optimizer() returned a list: return one torch.optim.Optimizer"],
    ),
    "optimizer is an object": (
        COMPLETE + "optimizer = torch.optim.SGD(model().parameters())\n",
        ["optimizer is a SGD, and autotune calls optimizer(params)"],
    ),
    "unknown knob": (COMPLETE + "baseline = {'batchsize': 8}\n", ["'batchsize', which is not a knob", "batch_size?"]),
    "impossible value": (COMPLETE + "space = {'amp_dtype': ['bf16']}\n", ['space["amp_dtype"]:', "got 'bf16'"]),
    "empty range": (COMPLETE + "space = {'batch_size': (64, 8)}\n", ["a range with nothing in it"]),
    "baseline is a list": (COMPLETE + "baseline = [8]\n", ["baseline is a list"]),
    "global batch of nothing": (COMPLETE + "global_batch_size = 0\n", ["global_batch_size is 0"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_mistake_has_its_message(tmp_path: Path, mistake: str) -> None:
    text, expected = MISTAKES[mistake]

    error = refused(tmp_path, text)

    assert [part for part in expected if part not in str(error)] == [], str(error)


def test_a_file_that_trains_on_import_is_told_the_line(tmp_path: Path) -> None:
    text = (
        COMPLETE + "m = model()\no = torch.optim.SGD(m.parameters())\nm(torch.randn(1, 4)).sum().backward()\no.step()\n"
    )

    error = refused(tmp_path, text)

    assert "line 9, in <module>" in error.traceback


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


def test_the_folder_of_the_file_goes_first_on_the_path(tmp_path: Path) -> None:
    write(tmp_path, "WIDTH = 2\n", "parts_of_my_model.py")

    facts = inspect(tmp_path, "import parts_of_my_model\n" + COMPLETE)

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
        ("python model.py --lr 3", "neither a Python file nor a module"),
    ],
)
def test_a_reference_that_leads_nowhere_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, message: str
) -> None:
    write(tmp_path, COMPLETE)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(TargetError, match=message):
        resolve(reference)


def test_resolving_imports_no_torch(tmp_path: Path) -> None:
    path = write(tmp_path, COMPLETE)
    program = f"import sys; from autotune.targets import resolve; resolve({str(path)!r}); print('torch' in sys.modules)"

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "False"
