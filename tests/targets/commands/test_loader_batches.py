"""The samples in the batches of a script's DataLoader are counted, whatever their first dimension is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, zeros
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from autotune.targets.commands.watching.loader_batches import LoaderBatches
from tests.targets.commands.test_watched_commands import inspect, steps


def counted(loader: DataLoader[Any]) -> tuple[list[int], str]:
    """The samples of each batch, and how they are said to be counted."""
    count = LoaderBatches(loader._index_sampler)
    found = [count(batch) for batch in loader]
    return found, count.check_line.text if count.check_line else ""


def time_first(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    steps, labels = zip(*samples, strict=True)
    return torch.stack(steps, 1), torch.stack(labels)


def time_first_alone(samples: list[tuple[Tensor, Tensor]]) -> Tensor:
    return time_first(samples)[0]


def time_first_everywhere(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    steps, _ = time_first(samples)
    return steps, steps[..., 0]


def of_length(steps: int, samples: int = 20) -> TensorDataset:
    return TensorDataset(zeros(samples, steps, 4), zeros(samples))


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(of_length(5, 16))


class Buckets:
    """Batches of as many samples as fit, eight at most."""

    batch_size = 8

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[0, 1, 2], [3, 4, 5, 6, 7], [8, 9]])


@pytest.mark.parametrize("join", [time_first, time_first_alone, time_first_everywhere])
@pytest.mark.parametrize("length", [5, 9])
def test_time_steps_that_come_first_are_no_samples(length: int, join: Callable[..., Any]) -> None:
    found, told = counted(DataLoader(of_length(length), 8, collate_fn=join))

    assert found == [8, 8, 4]
    assert told.startswith("8 in a batch, by dimension ")


def test_time_steps_may_vary() -> None:
    data = [zeros(3 + number // 8, 4) for number in range(20)]

    found, told = counted(DataLoader(data, 8, collate_fn=lambda samples: torch.stack(samples, 1)))

    assert found == [8, 8, 4]
    assert told == "8 in a batch, by dimension 1 of float32 (3, 8, 4)"


def test_time_steps_of_a_stream_are_no_samples() -> None:
    assert counted(DataLoader(Stream(), 8, collate_fn=time_first))[0] == [8, 8]


@pytest.mark.parametrize(
    ("loader", "samples"),
    [
        (DataLoader(TensorDataset(zeros(20, 4), zeros(20)), 8), [8, 8, 4]),
        (DataLoader(TensorDataset(zeros(20, 8)), 8), [8, 8, 4]),  # as many features
        (DataLoader(TensorDataset(zeros(5, 8)), 8), [5]),  # and fewer samples than a batch
        (DataLoader(TensorDataset(zeros(10, 8)), batch_sampler=[[0, 1], [2, 3, 4]]), [2, 3]),
        (DataLoader(TensorDataset(zeros(20, 8)), batch_size=None), [8] * 20),
    ],
)
def test_samples_that_come_first_are_counted_without_a_doubt(loader: DataLoader[Any], samples: list[int]) -> None:
    assert counted(loader) == (samples, "")


def test_batches_of_a_sampler_of_the_users_own_are_counted_as_they_come_and_said_to_be_unsure() -> None:
    found, told = counted(DataLoader(TensorDataset(zeros(10, 8)), batch_sampler=Buckets()))

    assert found == [3, 5, 2]
    assert told == "3 in a batch, by dimension 0 of (float32 (3, 8)); unsure: its loader cuts 8"


def test_what_a_collate_function_drops_is_not_counted_and_said_to_be_unsure() -> None:
    loader = DataLoader(of_length(3), 8, collate_fn=lambda samples: default_collate(samples[:5]))

    found, told = counted(loader)

    assert found == [5, 5, 4]
    assert told == "5 in a batch, by dimension 0 of (float32 (5, 3, 4), float32 (5,)); unsure: its loader cuts 8"


RECURRENT = """
model = nn.LSTM(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(20, 5, 4), torch.randint(2, (20,)))
def joined(samples):
    x, y = zip(*samples)
    return torch.stack(x, 1), torch.stack(y)
for epoch in itertools.count():
    for x, y in DataLoader(data, 8, collate_fn=joined):
        nn.functional.cross_entropy(model(x)[0][-1], y).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_a_script_with_time_first_trains_with_the_batches_of_its_loader(tmp_path) -> None:
    facts = inspect(tmp_path, RECURRENT)

    (told,) = (one for one in facts.check_lines if one.name == "samples")
    assert facts.baseline is not None and facts.baseline["batch_size"] == 8
    assert (told.text, told.inferred) == ("8 in a batch, by dimension 0 of int64 (8,)", True)
    assert "autotune.step(loss=loss, samples=...)" in told.override
    assert [step.samples for step in steps(tmp_path, RECURRENT, 6)] == [8, 8, 4] * 2
