"""Samples that are taken one by one where one indexing gives the same batch: found there, and nowhere else."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from autotune.profile.measuring.at_once import fetching_at_once, one_by_one

WAITING, STEP = 1.0, 2.0  # seconds
TENSORS = TensorDataset(torch.randn(4096, 8), torch.randint(3, (4096,)))


class Rows(Dataset):
    def __init__(self, change=lambda row: row):
        self.rows, self.change = np.random.default_rng(0).normal(size=(4096, 8)).astype(np.float32), change

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"row": self.change(self.rows[index])}


class Retrying(Rows):
    """As network storage is read: a list would be tried for ever."""

    def __getitem__(self, index):
        while True:
            try:
                return self.rows[int(index)]
            except Exception:
                pass


class Whole(TensorDataset):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


def found(dataset, *, waiting=WAITING, samples=1024, **options):
    return one_by_one(DataLoader(dataset, batch_size=512, **options), samples, waiting, STEP)


@pytest.mark.parametrize(
    ("dataset", "name"), [(TENSORS, "TensorDataset"), (Subset(TENSORS, range(2000)), "TensorDataset"), (Rows(), "Rows")]
)
def test_what_one_indexing_gives_as_well_costs_a_call_for_each_sample(dataset, name):
    one = found(dataset, shuffle=True)

    assert (one.what, one.count) == (name, 1024)
    assert 0 < one.seconds < WAITING


def test_the_line_is_that_of_the_users_dataset():
    assert found(TENSORS).place == ""
    assert found(Rows()).place.endswith("in Rows.__getitem__")


def test_a_step_gains_no_more_than_it_waits():
    assert 0 < found(TENSORS, waiting=1e-9).seconds < 1e-9


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (Rows(lambda row: row + np.random.default_rng().normal()), {}),
        (Rows(lambda row: row.mean()), {}),
        (Rows(lambda row: row[:4].copy() if row.ndim == 1 else row), {}),
        (list(TENSORS), {}),
        (Rows(lambda row: row if torch.rand(()) < 2 else -row), {}),
        (Retrying(), {}),
        (Whole(*TENSORS.tensors), {}),
        (TENSORS, {"collate_fn": lambda samples: torch.stack([row for row, _ in samples])}),
    ],
    ids=[
        "draws at random",
        "reduces a row",
        "cuts a row",
        "no tensor",
        "draws",
        "catches errors",
        "takes lists already",
        "joins otherwise",
    ],
)
def test_what_would_be_another_batch_has_to_be_taken_one_by_one(dataset, options):
    assert found(dataset, **options) is None


def test_what_the_users_own_code_joins_has_a_line_of_its_own():
    def collate(samples):
        return [torch.stack(parts) for parts in zip(*samples, strict=True)]

    assert found(TENSORS, collate_fn=collate) is None


def test_loader_workers_that_are_fast_enough_lose_nothing():
    assert found(TENSORS, num_workers=2) is None


def test_batches_that_are_taken_at_once_are_the_same_in_the_same_order():
    def batches(**options):
        torch.manual_seed(0)
        return list(DataLoader(TENSORS, **options))

    usual = batches(batch_size=512, shuffle=True, drop_last=True)
    with fetching_at_once(TENSORS) as leave_out:
        leave_out(True)
        switched = batches(batch_size=512, shuffle=True, drop_last=True)
    loader = DataLoader(TENSORS, batch_size=512, shuffle=True, drop_last=True)
    advised = batches(batch_size=None, sampler=loader.batch_sampler)

    for one, other, third in zip(usual, switched, advised, strict=True):
        assert all(map(torch.equal, one, other))
        assert all(map(torch.equal, one, third))
