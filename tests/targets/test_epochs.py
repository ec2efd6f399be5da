"""How long an epoch is, as far as the loader knows."""

import pytest
from torch.utils.data import DataLoader, Dataset, IterableDataset

from autotune.targets.data import Epochs


class Ten(Dataset):
    """Ten samples."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index


class Stream(IterableDataset):
    """As many, which nobody counts."""

    def __iter__(self):
        return iter(range(10))


class Endless:
    """A sampler without a length."""

    def __iter__(self):
        return iter(range(10))


@pytest.mark.parametrize(
    ("dataset", "sampler", "batches"),
    [(Ten(), None, 3), (Stream(), None, 0), (Ten(), Endless(), 0)],
    ids=["dataset", "stream", "sampler without a length"],
)
def test_the_batches_of_an_epoch_are_known_unless_nobody_can(dataset, sampler, batches):
    assert Epochs(DataLoader(dataset, batch_size=3, drop_last=True, sampler=sampler)).batches == batches
