"""The samples of a batch that the target cut itself are counted, whatever the batch looks like."""

from __future__ import annotations

from collections import UserDict, namedtuple
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import zeros
from torch.nn.utils.rnn import pack_sequence

from autotune.errors import TargetError
from autotune.targets import resolve
from autotune.targets.batches import first_dimension
from autotune.targets.counting import OwnBatches
from tests.targets_support import HEAD, clean_imports, inspect, refused, start, watch, write

Pair = namedtuple("Pair", "x y")
LAYOUTS: dict[str, Callable[[int], Any]] = {  # of n samples
    "tensor": lambda n: zeros(n, 4),
    "pair": lambda n: (zeros(n, 4), zeros(n)),
    "named tuple": lambda n: Pair(zeros(n, 4), zeros(n)),
    "dict": lambda n: {"input_ids": zeros(n, 9), "labels": zeros(n)},
    "another mapping": lambda n: UserDict(x=zeros(n, 4)),
    "nested": lambda n: {"image": (zeros(n, 3, 6, 6), [zeros(n, 5)]), "label": zeros(n)},
    "a single number first": lambda n: (torch.tensor(7), zeros(n, 4), zeros(n)),
    "strings beside tensors": lambda n: (["name"] * n, zeros(n, 4)),
    "strings alone": lambda n: {"text": ["name"] * n},
    "an array": lambda n: (np.zeros((n, 4)), np.zeros(n)),
    "time first": lambda n: (zeros(20, n, 4), zeros(n)),
    "time first alone": lambda n: zeros(20, n, 4),
    "time first everywhere": lambda n: (zeros(20, n), zeros(20, n)),
    "as many time steps as samples": lambda n: (zeros(8, n, 4), zeros(n)),
    "batch first with as many time steps as samples": lambda n: (zeros(n, 8), zeros(n, 8)),
    "images as wide as there are samples": lambda n: (zeros(n, 3, 8, 8), zeros(n)),
    "features as many as samples": lambda n: (zeros(20, n, 8), zeros(n)),
    "channels first": lambda n: (zeros(3, n, 5, 5), zeros(n)),
    "layers of a state first": lambda n: {"hidden": zeros(2, n, 16), "tokens": zeros(n, 20)},
    "two views of every sample": lambda n: (zeros(2 * n, 3), zeros(n)),
    "nodes of graphs, end to end": lambda n: (zeros(50 + n, 6), zeros(2, 99), zeros(50 + n), zeros(n)),
    "sentences, packed": lambda n: (pack_sequence([zeros(20 - i, 4) for i in range(n)]), zeros(n)),
    "sentences, packed in their order": lambda n: pack_sequence(
        [zeros(20 + i, 4) for i in range(n)], enforce_sorted=False
    ),
    "ragged, one list entry per sample": lambda n: (
        [zeros(3, 20 + i, 30) for i in range(n)],
        [{"boxes": zeros(2, 4)}] * n,
    ),
    "boxes of as many numbers as samples": lambda n: ([zeros(3, 20, 30)] * n, [{"boxes": zeros(2, 8)}] * n),
    "a list of samples": lambda n: [(zeros(30 + i), "name") for i in range(n)],
    "weights of the classes beside": lambda n: (zeros(n, 4), zeros(n), zeros(10)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_samples_of_every_layout_are_counted_in_whole_and_in_short_batches(layout: str) -> None:
    batch, count = LAYOUTS[layout], OwnBatches("dataloader", 8)

    found = [count(batch(8)), count(batch(5)), count(batch(8))]

    assert found == [8, 5, 8]


@pytest.mark.parametrize("batch", [SimpleNamespace(x=zeros(3)), torch.tensor(5), ["a", "b"], {"size": torch.tensor(5)}])
def test_a_batch_without_dimensions_is_taken_to_be_what_was_asked_for(batch: Any) -> None:
    count = OwnBatches("dataloader", 8)

    assert [count(batch), count(batch)] == [8, 8]


def test_time_steps_that_vary_are_not_taken_for_samples_though_the_first_batch_had_as_many() -> None:
    count = OwnBatches("dataloader", 8)

    found = [count(zeros(steps, 8, 4)) for steps in (8, 11, 6)]

    assert found == [8, 8, 8]


def test_batches_of_two_tasks_by_turns_are_counted_by_their_own_dimensions() -> None:
    count = OwnBatches("dataloader", 8)
    batches = [{"text": zeros(8, 4)}, {"audio": zeros(50, 8)}, {"text": zeros(5, 4)}, {"audio": zeros(50, 3)}]

    assert [count(batch) for batch in batches] == [8, 8, 5, 3]


@pytest.mark.parametrize("later", [zeros(9, 4), {"x": zeros(9, 4)}, SimpleNamespace(x=zeros(8, 4))])
def test_a_later_batch_without_a_dimension_that_can_be_the_samples_asks_for_samples(later: Any) -> None:
    count = OwnBatches("dataloader", 8)
    count(zeros(8, 4))

    with pytest.raises(TargetError, match=r"was asked for batches of 8 samples and gave .* or write samples\(batch\)"):
        count(later)


SEQUENCES = HEAD + (
    "class Net(nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n"
    "        self.rnn, self.head = nn.LSTM(4, 8), nn.Linear(8, 2)\n"
    "    def forward(self, x): return self.head(self.rnn(x)[0][-1])\n"
    "def model(): return Net()\n"
    "def loss(model, batch):\n    x, y = batch\n    return nn.functional.cross_entropy(model(x), y)\n"
)
TIME_FIRST = "torch.randn({steps}, {size}, 4), torch.randint(2, ({size},))"
OWN_LOADER = "def dataloader(batch_size):\n    while True: yield {batch}\n"
ANY_LOSS = "def loss(model, batch): return sum(p.sum() for p in model.parameters())\n"
SYNTHETIC = "def batch(batch_size): return {batch}\n"


def own(source: str, batch: str) -> str:
    return source.format(batch=batch)


@pytest.mark.parametrize("source", [OWN_LOADER, SYNTHETIC])
def test_a_batch_with_time_first_counts_its_samples(tmp_path: Path, source: str) -> None:
    text = SEQUENCES + own(source, TIME_FIRST.format(steps=50, size="batch_size"))

    start(tmp_path, text, batch_size=16, gradient_accumulation_steps=2).train(recorder := watch(2))

    assert [step.samples for step in recorder.steps] == [32, 32]


def test_a_short_batch_with_time_first_does_not_make_shapes_vary(tmp_path: Path) -> None:
    batches = "[" + TIME_FIRST.format(steps=50, size="batch_size") + "], [" + TIME_FIRST.format(steps=50, size=5) + "]"
    text = SEQUENCES + f"def dataloader(batch_size): return [{batches}]\n"
    session = start(tmp_path, text, batch_size=16)

    session.train(recorder := watch(4))

    assert [step.samples for step in recorder.steps] == [16, 5, 16, 5]
    assert not session.shapes_vary


@pytest.mark.parametrize(
    ("batch", "told", "inferred"),
    [
        (
            TIME_FIRST.format(steps=50, size="batch_size"),
            "32 in a batch, by dimension 0 of int64 (32,)",
            True,
        ),
        ("torch.randn(50, batch_size, 4)", "32 in a batch, by dimension 1 of float32 (50, 32, 4)", True),
        ("torch.randn(32, batch_size, 4)", "32 in a batch, by dimension 1 of float32 (32, 32, 4)", True),
        ("torch.randn(batch_size, 32, 4)", "32 in a batch, by dimension 0 of float32 (32, 32, 4)", False),
        ("__import__('numpy').ones((batch_size, 4))", "32 in a batch, by dimension 0 of float64 (32, 4)", False),
        ("[['name'] * batch_size, 0]", "32 in a batch, by the length of a list", False),
        (
            "type('Graphs', (), {})()",
            "32 in a batch, taken from the batch size that was asked for: the batch cannot be looked into",
            True,
        ),
    ],
)
def test_what_the_samples_are_counted_by_is_told(tmp_path: Path, batch: str, told: str, inferred: bool) -> None:
    facts = inspect(tmp_path, SEQUENCES + own(SYNTHETIC, batch) + ANY_LOSS)

    found = {one.name: one for one in facts.check_lines}["samples"]
    assert (found.text, found.inferred, found.override) == (told, inferred, "samples(batch)")


def test_samples_counted_by_the_target_are_told_and_those_of_a_dataset_are_not(tmp_path: Path) -> None:
    own_count = own(OWN_LOADER, TIME_FIRST.format(steps=50, size="batch_size")) + "def samples(batch): return 7\n"
    cut_here = "def dataset(): return [(torch.randn(50, 4), 1)] * 99\ndef collate(samples):\n" + (
        "    x, y = zip(*samples)\n    return torch.stack(x, 1), torch.tensor(y)\n"
    )

    counted = {one.name: one.text for one in inspect(tmp_path, SEQUENCES + own_count).check_lines}
    whole = {one.name: one.text for one in inspect(tmp_path, SEQUENCES + cut_here).check_lines}

    assert counted["samples"] == "7 in a batch, by samples(batch)"
    assert "samples" not in whole


@pytest.mark.parametrize(
    "batch",
    [
        "torch.randn(24, 32, 4)",  # time steps, by chance as many as were asked for
        "torch.randn(32, 24, 4), torch.zeros(24).long()",
        "{'x': torch.randn(24, 32)}",
    ],
)
def test_a_batch_size_of_its_own_is_found_out_though_another_dimension_fits_by_chance(
    tmp_path: Path, batch: str
) -> None:
    error = refused(
        tmp_path, SEQUENCES + own(OWN_LOADER, batch) + "def loss(model, batch): return model.head.bias.sum()\n"
    )

    assert "dataloader() was asked for batches of 32 samples and gave" in str(error)
    assert "when asked for 16" in str(error)
    assert "write samples(batch)" in str(error)


FIXED = {  # batches of 32, of which another dimension is 64
    "as many features": "torch.randn(32, 64), torch.zeros(32).long()",
    "as many features, alone": "{'x': torch.randn(32, 64)}",
    "as many time steps": "torch.randn(64, 32, 4), torch.zeros(32).long()",
    "as many classes with weights": "torch.randn(32, 4), torch.zeros(32).long(), torch.ones(64)",
    "names": "{'text': ['name'] * 32}",
    "objects": "type('Graphs', (), {})()",
}


@pytest.mark.parametrize("batch", FIXED)
@pytest.mark.parametrize("data", ["def dataloader(): return [({batch},)] * 9\n", "def batch(): return {batch}\n"])
def test_a_batch_size_that_cannot_be_asked_for_is_never_counted_as_another(
    tmp_path: Path, data: str, batch: str
) -> None:
    session = start(tmp_path, SEQUENCES + own(data, FIXED[batch]) + ANY_LOSS, batch_size=64)

    with pytest.raises(
        TargetError, match=r"\(\) was asked for batches of 64 samples and gave .* Give it an argument b"
    ):
        session.train(watch(1))


@pytest.mark.parametrize("batch", ["as many features", "as many features, alone", "names"])
@pytest.mark.parametrize("source", [OWN_LOADER, SYNTHETIC])
def test_a_batch_size_that_is_ignored_is_found_out_though_the_first_one_fits(
    tmp_path: Path, source: str, batch: str
) -> None:
    error = refused(tmp_path, SEQUENCES + own(source, FIXED[batch]) + ANY_LOSS)

    assert "was asked for batches of 32 samples and gave" in str(error)
    assert "when asked for 16. It probably has a batch size of its own" in str(error)


def test_a_loader_that_never_gives_more_than_it_has_is_not_counted_by_its_features(tmp_path: Path) -> None:
    loader = own(OWN_LOADER, "torch.randn(min(batch_size, 32), 64), torch.zeros(min(batch_size, 32)).long()")
    inspect(tmp_path, SEQUENCES + loader + ANY_LOSS)
    session = start(tmp_path, SEQUENCES + loader + ANY_LOSS, batch_size=64)

    with pytest.raises(TargetError, match="or no more samples"):
        session.train(watch(1))


@pytest.mark.parametrize("batch", ["torch.randn({n}, 64), torch.zeros({n}).long()", "torch.randn(16, {n}, 4)"])
def test_a_loader_that_gives_the_size_asked_for_is_counted_by_it(tmp_path: Path, batch: str) -> None:
    text = SEQUENCES + own(OWN_LOADER, batch.format(n="batch_size")) + ANY_LOSS
    inspect(tmp_path, text)

    start(tmp_path, text, batch_size=64).train(recorder := watch(1))

    assert [step.samples for step in recorder.steps] == [64]


def test_a_loader_that_fails_for_another_size_is_told_why_it_was_asked(tmp_path: Path) -> None:
    loader = "def dataloader(batch_size):\n    if batch_size != 32: raise ValueError('only 32')\n"
    text = SEQUENCES + loader + "    return [(torch.randn(32, 4), torch.zeros(32).long())]\n" + ANY_LOSS

    error = refused(tmp_path, text)

    assert "ValueError: only 32" in str(error)
    assert "dataloader() was asked for batches of 16 after 32, to see which dimension is that of the samples" in str(
        error
    )
    assert "write samples(batch)" in str(error)
    assert "raise ValueError" in error.traceback


def test_a_loader_that_gives_no_batch_of_another_size_is_refused(tmp_path: Path) -> None:
    loader = (
        "def dataloader(batch_size): return LEFT\nLEFT = iter([(torch.randn(32, 4), torch.zeros(32).long())] * 1)\n"
    )

    error = refused(tmp_path, SEQUENCES + loader + ANY_LOSS)

    assert "no batch" in str(error)
    assert "write samples(batch)" in str(error)


def test_the_second_loader_of_an_inspection_has_the_deadline_of_building(tmp_path: Path) -> None:
    path = write(tmp_path, SEQUENCES + own(OWN_LOADER, "torch.randn(batch_size, 64)") + ANY_LOSS)
    phases: list[str] = []

    with clean_imports():
        resolve(str(path)).inspect("cpu", None, phases.append)

    assert phases == ["load", "build", "warm-up", "build"]


def test_a_target_that_counts_its_samples_is_not_asked_for_another_size(tmp_path: Path) -> None:
    loader = "def dataloader(batch_size):\n    assert batch_size == 32\n    return [torch.randn(32, 64)]\n"

    facts = inspect(tmp_path, SEQUENCES + loader + ANY_LOSS + "def samples(batch): return len(batch)\n")

    assert "32 in a batch, by samples(batch)" in [one.text for one in facts.check_lines]


def test_a_batch_size_told_by_setup_or_the_knobs_is_counted(tmp_path: Path) -> None:
    by_setup = (
        "def setup(batch_size):\n    global SIZE\n    SIZE = batch_size\ndef batch(): return torch.randn(SIZE, 64)\n"
    )
    by_knobs = "def batch(knobs): return torch.randn(20, knobs['batch_size'], 4)\n"

    for number, data in enumerate((by_setup, by_knobs)):
        inspect(tmp_path, SEQUENCES + data + ANY_LOSS, name=f"inspected_{number}.py")
        start(tmp_path, SEQUENCES + data + ANY_LOSS, batch_size=64).train(recorder := watch(1))
        assert [step.samples for step in recorder.steps] == [64]


def test_a_batch_size_of_its_own_that_fits_by_chance_is_told(tmp_path: Path) -> None:
    fixed = (
        HEAD
        + "def model(): return nn.Linear(4, 2)\n"
        + ("def dataloader(): return torch.utils.data.DataLoader([(torch.randn(4), 1)] * 99, batch_size=32)\n")
    )

    found = {one.name: one for one in inspect(tmp_path, fixed).check_lines}["samples"]

    assert found.inferred
    assert found.text.endswith("; dataloader() takes no batch_size, so other sizes will be refused")


def test_a_count_that_is_no_number_says_so(tmp_path: Path) -> None:
    text = SEQUENCES + own(SYNTHETIC, TIME_FIRST.format(steps=50, size="batch_size"))

    error = refused(tmp_path, text + "def samples(batch): len(batch[1])\n")

    assert "samples(batch) returned a NoneType" in str(error)


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        ({"ids": torch.zeros(4, 16), "mask": torch.zeros(4, 16), "pixels": torch.zeros(900, 8)}, 4),
        (
            {"pixels": torch.zeros(2, 3, 8, 8), "labels": [{"boxes": torch.zeros(5, 4)}, {"boxes": torch.zeros(5, 4)}]},
            2,
        ),
        ((torch.zeros(8, 3), {"y": torch.zeros(8), "weight": torch.tensor(1.0)}), 8),
        (torch.zeros(8, 3), 8),
        ([object()], None),
    ],
)
def test_the_first_dimension_of_most_parts_is_what_a_loop_of_the_users_own_took(batch, size):
    assert first_dimension(batch) == size
