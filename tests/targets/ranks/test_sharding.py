"""Ranks share the data: no sample twice, as many batches for each, and the user is told where ranks do not share."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from tests.ranks import on_ranks

pytestmark = pytest.mark.slow
MODEL = """
import itertools, random, torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler
def model(): return nn.Linear(1, 1)
def loss(model, batch): return model(batch[0]).mean()
def baseline(): return {"batch_size": 3}
numbers = TensorDataset(torch.arange(21.0).unsqueeze(1))
"""
EPOCHS = """
def epochs(text, count=2):
    torch.manual_seed(RANK)  # ranks of a user's file may draw different numbers
    source = start(HERE, TARGET + text, batch_size=3).source
    return [[[int(x) for x in batch[0]] for batch in source()] for _ in range(count)]
"""


def _told(folder: Path, code: str, size: int = 2) -> list[dict]:  # type: ignore[type-arg]
    return on_ranks(folder, f"TARGET = {MODEL!r}\n{EPOCHS}{code}", size)


def test_ranks_have_no_sample_in_common_and_as_many_batches(tmp_path: Path) -> None:
    code = """
tell(dataset=epochs("def dataset(): return numbers"))
tell(sampler=epochs("def dataset(): return numbers\\ndef sampler(data): return RandomSampler(data)"))
endless = "class Endless:\\n    def __iter__(self): return (random.randrange(10**6) for _ in itertools.count())\\n"
always = "class Always(TensorDataset):\\n    def __getitem__(self, index): return (torch.tensor([float(index)]),)\\n"
lazy = endless + always + "def dataset(): return Always(torch.zeros(21))\\ndef sampler(data): return Endless()"
source = start(HERE, TARGET + lazy, batch_size=3).source
tell(endless=[[int(x) for x in batch[0]] for batch, _ in zip(source(), range(4))])
own = "def dataset(): return numbers\\ndef sampler(data): return DistributedSampler(data, drop_last=True)"
tell(own=epochs(own))
"""
    first, second = _told(tmp_path, code)

    for name in ("dataset", "sampler", "own"):
        for one, other in zip(first[name], second[name], strict=True):  # epochs
            assert [len(batch) for batch in one] == [len(batch) for batch in other] == [3, 3, 3]
            assert len({*chain(*one, *other)}) == 18
        assert first[name][0] != first[name][1], "each epoch has an order of its own"
    assert not {*chain(*first["endless"])} & {*chain(*second["endless"])}


def test_one_rank_has_all(tmp_path: Path) -> None:
    (told,) = _told(tmp_path, 'tell(dataset=epochs("def dataset(): return numbers"))', size=1)

    assert [sorted(chain(*epoch)) for epoch in told["dataset"]] == [list(range(21))] * 2


def test_ranks_that_read_the_same_are_told_of_it_and_unequal_epochs_too(tmp_path: Path) -> None:
    code = """
def told(text):
    found = inspect(HERE, TARGET + text).check_lines
    texts = [one.text for one in found if one.name == "ranks" and one.needs_attention]
    return [one.replace(f"rank{RANK}/", "") for one in texts]
loader = "def dataloader(batch_size, num_workers): return DataLoader({}, batch_size, num_workers=num_workers{})\\n"
tell(same=told(loader.format("numbers", "")))
tell(shared=told(loader.format("numbers", ", sampler=DistributedSampler(numbers)")))
unequal = "[(torch.tensor([index]),) for index in torch.arange(dist.get_rank(), 12.0, 1 + dist.get_rank())]"
tell(unequal=told(loader.format(unequal, "")))
stream = "class Stream(IterableDataset):\\n    def __iter__(self): return iter(numbers)\\n"
stream += "def dataset(): return Stream()\\n"
tell(stream=told(stream))
whole = "def dataset(): return numbers"
tell(ranks=inspect(HERE, TARGET + whole).ranks, whole=told(whole))
tell(longer=told("def dataset(): return TensorDataset(numbers.tensors[0][dist.get_rank() :])"))
try: start(HERE, TARGET + "def dataset(): return numbers", batch_size=11)
except TargetError as error: tell(few=str(error))
"""
    first, second = _told(tmp_path, code)

    assert first == second, "every rank says the same"
    assert "all 2 ranks had the same first batch" in first["same"][0]
    assert first["shared"] == []
    assert "batches, by rank" in first["unequal"][0]
    assert first["unequal"][0].endswith("Join (model.py:10)")
    assert "islice" in first["stream"][0]
    assert (first["ranks"], first["whole"]) == (2, [])
    assert first["longer"][0].startswith("the dataset has 21 and 20 samples, by rank. ")
    assert first["longer"][0].endswith("which autotune shares out (model.py:10)")
    assert first["few"].startswith("dataset has 21 samples and 2 ranks share them, one batch needs 11.")
