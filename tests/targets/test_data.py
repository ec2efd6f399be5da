"""Every kind of data becomes a stream of batches, as the plan says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from autotune.errors import TargetError
from autotune.targets.base import Order
from autotune.targets.batches import describe
from tests.targets_support import COMPLETE, DATASET, HEAD, MODEL, Recorder, inspect, refused, start, watch

SAMPLE = "(torch.randn(4), torch.tensor(1))"


@pytest.mark.parametrize(
    ("text", "kind", "samples"),
    [
        (DATASET, "dataset", 100),
        (f"dataset = [{SAMPLE}] * 40\n", "dataset", 40),
        (
            "class Plain:\n    def __len__(self): return 40\n    def __getitem__(self, index):\n"
            f"        if index >= 40: raise IndexError\n        return {SAMPLE}\ndataset = Plain()\n",
            "dataset",
            40,
        ),
        (
            "class Endless(IterableDataset):\n    def __iter__(self):\n"
            f"        while True: yield {SAMPLE}\ndef dataset(): return Endless()\n",
            "iterable",
            None,
        ),
        (
            f"class Stream:\n    def __iter__(self):\n        for _ in range(64): yield {SAMPLE}\n"
            "def dataset(): return Stream()\n",
            "iterable",
            None,
        ),
        (
            "def dataloader(batch_size, num_workers, **loader):\n    return torch.utils.data.DataLoader(\n"
            f"        [{SAMPLE}] * 64, batch_size=batch_size, num_workers=num_workers, **loader)\n",
            "dataloader",
            None,
        ),
        (
            "def dataloader(batch_size):\n"
            "    while True: yield torch.randn(batch_size, 4), torch.randint(2, (batch_size,))\n",
            "dataloader",
            None,
        ),
        (
            "def batch(batch_size, device):\n"
            "    return torch.randn(batch_size, 4, device=device), torch.randint(2, (batch_size,), device=device)\n",
            "batch",
            None,
        ),
    ],
)
def test_every_kind_of_data_trains(tmp_path: Path, text: str, kind: str, samples: int | None) -> None:
    facts = inspect(tmp_path, MODEL + text)
    session = start(tmp_path, MODEL + text, batch_size=16)

    session.train(recorder := watch(6))

    assert (facts.data, facts.dataset_samples) == (kind, samples)
    assert [step.samples for step in recorder.steps] == [16] * 6
    assert len(recorder.first_batches) == 1


@pytest.mark.parametrize(
    ("arguments", "takes"),
    [("batch_size, num_workers", True), ("batch_size, **loader", False), ("batch_size, *, num_workers=0", True)],
)
def test_workers_are_tuned_where_the_targets_own_loader_names_them(tmp_path: Path, arguments: str, takes: bool) -> None:
    batch = "torch.randn(batch_size, 4), torch.zeros(batch_size).long()"
    text = f"def dataloader({arguments}):\n    while True: yield {batch}\n"

    facts = inspect(tmp_path, MODEL + text)

    assert facts.takes_workers is takes
    told = [one.text for one in facts.check_lines if one.name == "workers"]
    assert told == ([] if takes else ["not tuned: dataloader() takes no num_workers"])


def test_a_generator_that_ends_is_made_anew(tmp_path: Path) -> None:
    text = MODEL + (
        "made = []\ndef dataloader(batch_size):\n    made.append(1)\n"
        "    for _ in range(2): yield torch.full((batch_size, 4), float(len(made))), torch.zeros(batch_size).long()\n"
        "def samples(batch): return int(batch[0][0, 0])\n"
    )

    session = start(tmp_path, text)

    session.train(recorder := watch(5))
    assert [step.samples for step in recorder.steps] == [1, 1, 2, 2, 3]
    assert recorder.epochs == 2


def test_an_epoch_without_a_batch_is_an_error_and_not_a_hang(tmp_path: Path) -> None:
    session = start(tmp_path, MODEL + "def dataloader(batch_size): return []\n")

    with pytest.raises(TargetError, match="no batch in a whole epoch"):
        session.train(watch(1))


def test_an_iterable_that_is_used_up_is_an_error_and_not_a_hang(tmp_path: Path) -> None:
    text = MODEL + (
        "class Once:\n    def __init__(self): self.left = iter(range(64))\n    def __iter__(self):\n"
        f"        for _ in self.left: yield {SAMPLE}\n"
        "def dataset(): return Once()\n"
    )
    session = start(tmp_path, text, batch_size=32)

    with pytest.raises(TargetError, match="iterated only once"):
        session.train(recorder := watch(9))
    assert len(recorder.steps) == 2


def test_the_last_partial_batch_is_left_out(tmp_path: Path) -> None:
    session = start(tmp_path, COMPLETE, batch_size=32)

    session.train(recorder := watch(7))

    assert [step.samples for step in recorder.steps] == [32] * 7  # 100 samples: three batches in an epoch
    assert recorder.epochs == 2


def test_samples_are_shuffled_unless_a_sampler_orders_them(tmp_path: Path) -> None:
    ordered = MODEL + (
        "def dataset(): return [(torch.full((4,), float(i)), 1) for i in range(64)]\n"
        "def samples(batch): return int((batch[0][:, 0] != torch.arange(len(batch[0]))).sum())\n"
    )

    start(tmp_path, ordered, batch_size=64).train(shuffled := watch(1))
    sequential = ordered + "def sampler(dataset): return torch.utils.data.SequentialSampler(dataset)\n"
    start(tmp_path, sequential, batch_size=64).train(straight := watch(1))

    assert shuffled.steps[0].samples > 0
    assert straight.steps[0].samples == 0


def test_one_process_sets_no_epoch_of_a_sampler_of_the_users(tmp_path: Path) -> None:
    text = MODEL + (
        "class Own(torch.utils.data.SequentialSampler):\n"
        "    def set_epoch(self, epoch): raise AssertionError('not asked for')\n"
        "def dataset(): return [(torch.randn(4), 1) for _ in range(64)]\n"
        "def sampler(dataset): return Own(dataset)\n"
    )

    start(tmp_path, text, batch_size=32).train(recorder := watch(3))

    assert recorder.epochs == 1


def test_the_users_own_loader_gets_the_loader_options(tmp_path: Path) -> None:
    text = MODEL + (
        "def dataloader(batch_size, num_workers, **loader):\n"
        "    assert (batch_size, num_workers) == (8, 2)\n"
        "    assert loader == {'pin_memory': False, 'persistent_workers': True, 'prefetch_factor': 2}\n"
        "    while True: yield torch.randn(batch_size, 4), torch.zeros(batch_size).long()\n"
    )

    session = start(tmp_path, text, batch_size=8, num_workers=2)

    session.train(recorder := watch(1))
    assert recorder.steps[0].samples == 8


COUNTING = MODEL + (
    "def dataloader(batch_size):\n    n = 0\n    while True:\n        n += 1\n"
    "        yield torch.randn(n, 4), torch.zeros(n).long()\n"
    "def samples(batch): return len(batch[1])\n"
)


def test_batches_that_are_only_loaded_are_told_and_not_trained_on(tmp_path: Path) -> None:
    session = start(tmp_path, COUNTING)

    session.train(recorder := Recorder(Order.CONTINUE, Order.LOAD, Order.LOAD, Order.CONTINUE))

    assert recorder.loads == [3, 4]
    assert [step.samples for step in recorder.steps] == [1, 2, 5]


@pytest.mark.slow
def test_waiting_for_a_batch_that_is_only_loaded_belongs_to_no_step(tmp_path: Path) -> None:
    text = COUNTING.replace(
        "        n += 1\n", "        n += 1\n        import time; time.sleep(1.0 if n == 2 else 0)\n"
    )
    session = start(tmp_path, text)

    session.train(recorder := Recorder(Order.LOAD, Order.CONTINUE))

    assert recorder.loads == [2]
    assert recorder.steps[1].loader_wait_seconds < 0.9


def test_loading_goes_on_over_the_ends_of_short_epochs(tmp_path: Path) -> None:
    session = start(tmp_path, COMPLETE, batch_size=32, num_workers=2)  # three batches in an epoch

    session.train(recorder := Recorder(*[Order.LOAD] * 10))

    assert recorder.loads == [32] * 10
    assert recorder.epochs == 3


def test_only_a_loader_can_be_told_apart(tmp_path: Path) -> None:
    synthetic = MODEL + "def batch(batch_size): return torch.randn(batch_size, 4), torch.zeros(batch_size).long()\n"

    assert start(tmp_path, COMPLETE).loads
    assert not start(tmp_path, synthetic).loads


def test_loader_workers_load(tmp_path: Path) -> None:
    text = MODEL + (
        "class InWorker(Dataset):\n    def __len__(self): return 64\n    def __getitem__(self, index):\n"
        "        return torch.randn(4), torch.utils.data.get_worker_info().id\ndef dataset(): return InWorker()\n"
    )
    session = start(tmp_path, text, batch_size=8, num_workers=2)

    session.train(recorder := watch(3))

    assert [step.samples for step in recorder.steps] == [8, 8, 8]


HUGGING_FACE = HEAD + (
    "class Columns:\n"
    "    def __init__(self, columns, tensors=False): self.columns, self.tensors = columns, tensors\n"
    "    column_names = property(lambda self: list(self.columns))\n"
    "    def with_format(self, kind): return Columns(self.columns, kind == 'torch')\n"
    "    def remove_columns(self, names):\n"
    "        return Columns({n: c for n, c in self.columns.items() if n not in names}, self.tensors)\n"
    "    def rename_column(self, old, new):\n"
    "        return Columns({new if n == old else n: c for n, c in self.columns.items()}, self.tensors)\n"
    "    def __len__(self): return len(next(iter(self.columns.values())))\n"
    "    def __getitem__(self, i):\n"
    "        return {n: torch.tensor(c[i]) if self.tensors else c[i] for n, c in self.columns.items()}\n"
    "class Net(nn.Embedding):\n"
    "    def forward(self, input_ids, labels):\n"
    "        return {'loss': nn.functional.cross_entropy(super().forward(input_ids).mean(1), labels)}\n"
    "def model(): return Net(9, 2)\n"
)


def test_unused_columns_of_a_hugging_face_dataset_are_dropped(tmp_path: Path) -> None:
    text = HUGGING_FACE + (
        "def dataset(): return Columns({'text': ['a'] * 40, 'input_ids': [[1, 2, 3]] * 40, 'label': [0, 1] * 20})\n"
    )

    facts = inspect(tmp_path, text)
    start(tmp_path, text, batch_size=8).train(recorder := watch(1))

    found = {one.name: one.text for one in facts.check_lines}
    assert found["loss"] == "the model's own .loss, inferred from a batch with input_ids, labels"
    assert found["optimizer"] == "AdamW(lr=0.0001)"
    assert (recorder.steps[0].samples, recorder.steps[0].tokens) == (8, 24)


TOKENIZED = HUGGING_FACE + "dataset = [{'input_ids': [1, 2, 3], 'labels': i % 2} for i in range(40)]\n"


def test_lists_of_token_ids_are_rows_of_a_batch_for_the_model(tmp_path: Path) -> None:
    found = {one.name: one.text for one in inspect(tmp_path, TOKENIZED).check_lines}

    assert found["data"] == "list, 40 samples; a batch is {input_ids: int64 (32, 3), labels: int64 (32,)}"


def test_lists_of_different_lengths_ask_for_padding(tmp_path: Path) -> None:
    text = TOKENIZED.replace("[1, 2, 3]", "[1] * (1 + i % 2)")

    assert "write collate(samples), or pad." in str(refused(tmp_path, text))


def test_a_loss_of_the_users_own_gets_what_a_plain_loader_gives(tmp_path: Path) -> None:
    text = TOKENIZED + (
        "def loss(model, batch): return model(torch.stack(batch['input_ids'], 1), batch['labels'])['loss']\n"
    )

    found = {one.name: one.text for one in inspect(tmp_path, text).check_lines}

    assert "{input_ids: (int64 (32,), int64 (32,), int64 (32,)), labels: int64 (32,)}" in found["data"]


def test_a_long_list_of_tensors_is_described_by_its_first(tmp_path: Path) -> None:
    assert describe([torch.zeros(2)] * 9).endswith("float32 (2,), and 5 more)")


OBJECTS = MODEL + (
    "class Batch:\n    def __init__(self, x): self.x = x\n"
    "def collate(samples): return Batch(torch.stack(samples))\n"
    "def loss(model, batch): return model(batch.x).sum()\n"
    "def dataset(): return [torch.randn(4) for _ in range(100)]\n"
)
TIME_FIRST = MODEL + (
    "def dataset(): return [torch.randn(4) for _ in range(100)]\n"
    "def collate(samples): return torch.stack(samples).expand(50, -1, -1)\n"
    "def loss(model, batch): return model(batch).sum()\n"
)
OWN_OBJECTS = OBJECTS.replace("def dataset()", "def dataloader(batch_size)").replace(
    "[torch.randn(4) for _ in range(100)]", "[Batch(torch.randn(batch_size, 4))] * 9"
)


@pytest.mark.parametrize("text", [OBJECTS, TIME_FIRST, OWN_OBJECTS], ids=["objects", "time first", "own loader"])
def test_samples_are_counted_whatever_a_batch_looks_like(tmp_path: Path, text: str) -> None:
    start(tmp_path, text, batch_size=8, gradient_accumulation_steps=2).train(recorder := watch(2))

    assert [step.samples for step in recorder.steps] == [16, 16]


def test_learning_rates_of_all_groups_are_told(tmp_path: Path) -> None:
    text = COMPLETE + (
        "def optimizer(model):\n"
        "    return torch.optim.Adam([{'params': [model.weight], 'lr': 0.2}, {'params': [model.bias], 'lr': 0.1}])\n"
    )

    found = {one.name: one.text for one in inspect(tmp_path, text).check_lines}

    assert found["optimizer"] == "Adam(lr=0.2 and 0.1)"


def test_a_hugging_face_dataset_that_is_not_tokenized_says_so(tmp_path: Path) -> None:
    error = refused(tmp_path, HUGGING_FACE + "dataset = Columns({'text': ['a'] * 40, 'label': [1] * 40})\n")

    assert "the columns text, labels, of which Net.forward takes none but labels" in str(error)


def test_a_file_that_is_inspected_says_what_a_batch_looks_like(tmp_path: Path) -> None:
    text = MODEL + "def batch(batch_size): return torch.randn(batch_size, 4), torch.zeros(batch_size).long()\n"

    found = {one.name: one.text for one in inspect(tmp_path, text).check_lines}

    assert found["data"] == "one synthetic batch, reused; a batch is (float32 (32, 4), int64 (32,))"


STREAM = (
    "class Stream(IterableDataset):\n    def __iter__(self):\n        {asks}\n"
    "        for _ in range(64): yield torch.randn(4), torch.tensor(1)\ndef dataset(): return Stream()\n"
)


@pytest.mark.parametrize(
    ("asks", "repeats"),
    [
        ("pass", True),
        ("torch.utils.data.get_worker_info()", False),
        ("from torch.utils.data import get_worker_info as mine; mine()", False),
    ],
)
def test_a_stream_that_workers_would_repeat_is_pointed_out_before_any_search(
    tmp_path: Path, asks: str, repeats: bool
) -> None:
    facts = inspect(tmp_path, MODEL + STREAM.format(asks=asks))

    assert facts.repeats_samples is repeats
    told = [one for one in facts.check_lines if one.name == "workers"]
    assert [one.needs_attention for one in told] == [True] * repeats
    assert all("get_worker_info()" in one.text and "if --workers asks" in one.text for one in told)


def test_samples_that_are_told_by_number_are_shared_out_by_the_loader(tmp_path: Path) -> None:
    assert "workers" not in {one.name for one in inspect(tmp_path, COMPLETE).check_lines}


def test_workers_that_a_loader_of_the_users_does_not_take_are_never_measured(tmp_path):
    text = MODEL + (
        "from torch.utils.data import DataLoader\n"
        "def dataloader(batch_size, num_workers):\n"
        "    return DataLoader([(torch.ones(4), 1)] * 64, batch_size, num_workers=min(num_workers, 1))\n"
    )
    start(tmp_path, text, batch_size=8, num_workers=1)

    with pytest.raises(TargetError, match="was given 2 loader workers and trained with 1 loader worker"):
        start(tmp_path, text, batch_size=8, num_workers=2)


def test_one_process_does_not_ask_its_loader_for_a_length(tmp_path: Path) -> None:
    """It may take long to tell, or raise: only ranks compare theirs."""
    facts = inspect(
        tmp_path,
        MODEL + DATASET.replace("def dataset()", "def data()") + "class Endless(torch.utils.data.Sampler):\n"
        "    def __iter__(self):\n        while True: yield torch.randint(100, (32,)).tolist()\n"
        "    def __len__(self): raise NotImplementedError\n"
        "def dataloader(): return torch.utils.data.DataLoader(data(), batch_sampler=Endless())\n",
    )

    assert facts.data == "dataloader"


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_a_model_of_torchscript_is_inspected(tmp_path: Path) -> None:
    text = COMPLETE.replace("return nn.Linear(4, 2)", "return torch.jit.script(nn.Linear(4, 2))")

    assert inspect(tmp_path, text).step.parameters_with_gradient == 2
