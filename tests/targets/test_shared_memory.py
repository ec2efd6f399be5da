"""What the workers of a loader will need of /dev/shm is known before they start."""

from __future__ import annotations

import mmap
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from autotune.targets.base import SharedMemoryTooSmall
from autotune.targets.shared_memory import BATCHES_IN_USE, batch_bytes, check

MIB = 2**20
PIXELS = 2**18 - mmap.PAGESIZE // 8  # of float32: two samples and a page of labels are two mebibytes
PAGES = mmap.PAGESIZE


class _Broken(TensorDataset):
    def __getitem__(self, index: int) -> Any:
        raise KeyError("of the user's own")


class _Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Any:
        return iter(torch.zeros(4, PIXELS))


def _loader(dataset: Any = None, **options: Any) -> DataLoader[Any]:
    made = dataset or TensorDataset(torch.zeros(4, PIXELS), torch.zeros(4))
    return DataLoader(made, **{"batch_size": 2, "num_workers": 1, "prefetch_factor": 2, **options})


def test_a_batch_is_as_many_whole_pages_of_every_tensor_as_its_samples_fill() -> None:
    image = -(-2 * PIXELS * 4 // PAGES) * PAGES

    assert batch_bytes(_loader()) == image + PAGES


def test_as_many_batches_are_needed_as_the_workers_prepare_and_the_loop_holds() -> None:
    loader = _loader()
    need = (2 + BATCHES_IN_USE) * batch_bytes(loader)

    check(loader, need)
    with pytest.raises(SharedMemoryTooSmall):
        check(loader, need - 1)


def test_the_refusal_says_how_much_and_what_to_do() -> None:
    with pytest.raises(SharedMemoryTooSmall) as caught:
        check(_loader(), MIB)

    assert str(caught.value).startswith(
        "num_workers 1 keeps up to 4 batches of 2 MiB in shared memory, 8 MiB in all, and /dev/shm has 1 MiB free."
    )
    assert "--shm-size" in str(caught.value)


@pytest.mark.parametrize(
    "loader",
    [
        _loader(num_workers=0, prefetch_factor=None),
        _loader(_Stream()),
        _loader(_Broken(torch.zeros(4))),
    ],
    ids=["no workers", "iterable", "broken"],
)
def test_nothing_is_said_where_it_cannot_be_told(loader: DataLoader[Any]) -> None:
    check(loader, 0)


def test_nothing_is_said_where_there_is_no_shared_memory_to_look_at() -> None:
    check(_loader(), None)


def test_looking_at_one_sample_disturbs_nothing_that_draws_by_chance() -> None:
    torch.manual_seed(3)
    expected = float(torch.rand(()))

    torch.manual_seed(3)
    batch_bytes(_loader(shuffle=True))

    assert float(torch.rand(())) == expected
