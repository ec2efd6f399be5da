"""The batch that needs the most memory is found, trained on, and leaves no trace in what the training sees."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, TensorDataset

from autotune.errors import TargetError
from autotune.targets.batches import ALWAYS_LOOKED_AT, Shapes
from autotune.targets.peek import random_state_kept, sample_size, some_keys
from autotune.targets.worst_batch import longest
from tests.targets_support import COMPLETE, HEAD, MODEL, inspect, refused, start, watch

WORDS = """
class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head, self.lengths = nn.Embedding(9, 4), nn.Linear(4, 2), []
    def forward(self, x):
        self.lengths.append(x.shape[1])
        return self.head(self.words(x).mean(1))
class Sentences(Dataset):
    def __len__(self): return 60
    def __getitem__(self, index): return torch.randint(9, (1 + index,)), index % 2
def model(): return Text()
"""
SENTENCES = "def dataset(): return Sentences()\n"
COLLATE = """
def collate(samples):
    words, labels = zip(*samples)
    return nn.utils.rnn.pad_sequence(words, batch_first=True), torch.tensor(labels)
"""
VARIED = HEAD + WORDS + SENTENCES + COLLATE


class _Sized(torch.utils.data.Dataset[torch.Tensor]):
    """Sample `i` has as many elements as `sizes[i]`."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes, self.seen = sizes, 0

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.seen += 1
        return torch.zeros(self.sizes[index])


def _padded(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


def _trained(folder: Path, text: str, steps: int = 3, **values: Any) -> tuple[Any, Any]:
    session: Any = start(folder, text, **values)
    session.train(recorder := watch(steps))
    return session, recorder


@pytest.mark.parametrize("workers", [0, 1])
def test_where_lengths_vary_the_longest_samples_are_trained_on(tmp_path: Path, workers: int) -> None:
    session, _ = _trained(tmp_path, VARIED, batch_size=4, gradient_accumulation_steps=3, num_workers=workers)
    before = len(session.model.lengths)

    count = session.train_worst()

    assert session.shapes_vary
    assert count == 3
    assert session.model.lengths[before:] == [60, 60, 60]


def test_where_all_batches_have_one_shape_nothing_worse_is_looked_for(tmp_path: Path) -> None:
    session, _ = _trained(tmp_path, COMPLETE, batch_size=8)

    assert not session.shapes_vary
    assert session.train_worst() == 0


def test_the_targets_own_worst_batch_goes_before_any_other(tmp_path: Path) -> None:
    own = "def worst_batch(batch_size): return torch.zeros(batch_size, 500).long(), torch.zeros(batch_size).long()\n"
    session, _ = _trained(tmp_path, VARIED + own, batch_size=4)

    assert session.train_worst() == 1
    assert session.model.lengths[-1] == 500


@pytest.mark.parametrize(
    "data",
    [
        "class Stream(IterableDataset):\n    def __iter__(self): return (Sentences()[i] for i in range(60))\n"
        "def dataset(): return Stream()\n",
        "def dataloader(batch_size):\n"
        "    return torch.utils.data.DataLoader(Sentences(), batch_size=batch_size, collate_fn=collate)\n",
    ],
)
def test_what_varies_and_cannot_be_looked_up_has_no_known_worst_case(tmp_path: Path, data: str) -> None:
    session, _ = _trained(tmp_path, HEAD + WORDS + data + COLLATE, batch_size=4)

    assert session.shapes_vary
    assert session.train_worst() == 0


def test_a_worst_batch_that_fails_is_the_users_to_mend(tmp_path: Path) -> None:
    session, _ = _trained(tmp_path, COMPLETE + "def worst_batch(batch_size): pass\n", batch_size=8)

    with pytest.raises(TargetError, match=r"worst_batch\(\) returned None"):
        session.train_worst()


def test_a_worst_batch_that_is_no_function_is_refused(tmp_path: Path) -> None:
    assert "worst_batch(batch_size)" in str(refused(tmp_path, COMPLETE + "worst_batch = 3\n"))


@pytest.mark.parametrize(
    ("text", "said", "is_known"),
    [
        (COMPLETE, "the longest samples, where shapes vary", True),
        (COMPLETE + "def worst_batch(batch_size): return dataset()[:batch_size]\n", "trained on in every probe", True),
        (MODEL + "def dataloader(): return [(torch.randn(32, 4), torch.zeros(32).long())]\n", "not known", False),
    ],
)
def test_a_check_says_how_the_worst_case_will_be_known(tmp_path: Path, text: str, said: str, is_known: bool) -> None:
    found = {one.name: one for one in inspect(tmp_path, text).check_lines}

    assert said in found["worst batch"].text
    assert found["worst batch"].needs_attention is not is_known


def test_a_synthetic_batch_has_no_worst_case_to_speak_of(tmp_path: Path) -> None:
    text = MODEL + "def batch(batch_size): return torch.randn(batch_size, 4), torch.zeros(batch_size).long()\n"

    assert "worst batch" not in {one.name for one in inspect(tmp_path, text).check_lines}


def test_the_longest_of_all_samples_make_the_batch() -> None:
    loader = DataLoader(_Sized([3, 9, 1, 8, 7, 2]), batch_size=2, shuffle=True, collate_fn=_padded)

    assert longest(loader).shape == (2, 9)


def test_a_slow_dataset_is_looked_at_for_two_seconds_and_its_longest_is_repeated() -> None:
    slow = _Sized([5] * 1000)
    ticks = iter(range(100))  # every look at the clock is a second later

    batch = longest(DataLoader(slow, batch_size=64, collate_fn=_padded), clock=lambda: float(next(ticks)))

    assert batch.shape == (64, 5)
    assert slow.seen < 64 + 5


def test_a_large_dataset_is_looked_at_in_part_and_everywhere() -> None:
    keys = some_keys(DataLoader(_Sized([1] * 10_000), shuffle=True), 100)

    assert len(set(keys)) == 100
    assert min(keys) < 1000
    assert max(keys) > 9000


def test_a_sampler_of_the_users_own_says_which_samples_there_are() -> None:
    loader: DataLoader[Any] = DataLoader(_Sized([1] * 10), sampler=[7, 3, 5])

    assert some_keys(loader, 2) == [7, 3]


@pytest.mark.parametrize("workers", [0, 1])
def test_looking_for_the_worst_disturbs_nothing_that_draws_by_chance(tmp_path: Path, workers: int) -> None:
    loader: DataLoader[Any] = DataLoader(_Sized([1, 2]), batch_size=2, num_workers=workers, collate_fn=_padded)
    _seed()
    expected = _draws()

    _seed()
    longest(loader)

    assert _draws() == expected


def test_what_draws_by_chance_goes_on_as_if_nothing_had_been_drawn() -> None:
    _seed()
    expected = _draws()

    _seed()
    with random_state_kept():
        _draws()

    assert _draws() == expected


def test_a_file_that_a_dataset_opens_at_its_first_sample_is_not_inherited_by_the_workers() -> None:
    dataset = _Sized([1, 2, 3])

    longest(DataLoader(dataset, batch_size=2, num_workers=1, collate_fn=_padded))

    assert dataset.seen == 0


@pytest.mark.parametrize(
    ("sample", "size"),
    [
        (torch.zeros(3, 4), 12),
        ((torch.zeros(5), 1), 6),
        ({"input_ids": [1, 2, 3], "label": 0}, 4),
        ([[1, 2], [3]], 3),
        ("four", 4),
        (np.zeros((2, 5)), 10),
        (type("Image", (), {"size": (20, 10)})(), 200),
        (object(), 1),
        ([], 0),
    ],
)
def test_the_size_of_a_sample_is_what_its_memory_follows(sample: Any, size: int) -> None:
    assert sample_size(sample) == size


@pytest.mark.parametrize(
    ("batches", "vary"),
    [
        ([((8, 3), (8,)), ((8, 3), (8,))], False),
        ([((8, 3), (8,)), ((5, 3), (5,))], False),  # the last of an epoch
        ([((16, 3), (8,)), ((10, 3), (5,))], False),  # two views of every sample
        ([((20, 8, 3), (8,)), ((20, 5, 3), (5,))], False),  # time first
        ([((20, 8, 3), (8,)), ((21, 8, 3), (8,))], True),
        ([((3, 8), (8,)), ((3, 7), (5,))], True),
        ([((8, 3), (8,)), ((8, 4), (8,))], True),
        ([((8, 3), (8,)), ((5, 4), (5,))], True),
        ([((30, 3), (8,)), ((25, 3), (8,))], True),  # nodes of eight graphs, end to end
    ],
)
def test_batches_vary_if_more_than_their_number_of_samples_does(batches: list[Any], vary: bool) -> None:
    shapes = Shapes()

    for batch in batches:
        shapes.note([torch.zeros(shape) for shape in batch], samples=batch[-1][0], now=1.0)

    assert shapes.vary is vary


@pytest.mark.parametrize(("step_seconds", "looks"), [(0.02, 1000), (0.0005, ALWAYS_LOOKED_AT + 47)])
def test_shapes_are_looked_at_so_rarely_that_short_steps_do_not_pay_for_it(step_seconds: float, looks: int) -> None:
    class Batch(list[Any]):
        seen = 0

        def __iter__(self) -> Iterator[Any]:
            Batch.seen += 1
            return super().__iter__()

    shapes, batch = Shapes(), Batch([torch.zeros(8, 3)])

    for number in range(1000):
        shapes.note(batch, samples=8, now=number * step_seconds)

    assert Batch.seen == pytest.approx(looks, abs=2)


@pytest.mark.parametrize("sampler", [RandomSampler, SequentialSampler])
def test_every_sample_is_looked_at_where_there_is_time(sampler: Any) -> None:
    dataset = TensorDataset(torch.zeros(20))

    assert sorted(some_keys(DataLoader(dataset, sampler=sampler(dataset)), 4096)) == list(range(20))


def _seed() -> None:
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)


def _draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))
