"""The share of padding: by a mask, by a padding id at the ends, and unknown without either."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from autotune.profile.measuring.padding import Padding

IDS = torch.tensor([[5, 6, 7, 0], [5, 0, 0, 0]])


def share(batch, model=None):
    found = Padding(model or nn.Linear(1, 1))
    found.note(batch)
    return found.share


def test_a_mask_tells():
    assert share({"input_ids": IDS, "attention_mask": (IDS > 0).long()}) == 0.5
    assert share({"input_ids": IDS, "attention_mask": IDS > 0}) == 0.5


def test_the_padding_id_of_an_embedding_or_of_a_model_s_configuration_tells():
    embedding = nn.Sequential(nn.Embedding(10, 4, padding_idx=0))
    named = nn.Linear(1, 1)
    named.config = SimpleNamespace(pad_token_id=0)

    assert share((IDS, torch.zeros(2)), embedding) == 0.5
    assert share({"input_ids": IDS}, named) == 0.5


def test_padding_on_the_left_counts_and_the_same_id_between_tokens_does_not():
    embedding = nn.Embedding(10, 4, padding_idx=0)

    assert share(torch.tensor([[0, 0, 5, 6]]), embedding) == 0.5
    assert share(torch.tensor([[5, 0, 6, 0]]), embedding) == 0.25
    assert share(torch.zeros(1, 4, dtype=torch.int64), embedding) == 1.0


@pytest.mark.parametrize(
    "batch", [IDS, (torch.randn(4, 8), torch.zeros(4)), {"attention_mask": torch.ones(2, 1, 4, 4)}]
)
def test_without_mask_and_padding_id_it_is_unknown(batch):
    assert share(batch) is None


def test_batches_count_by_their_tokens():
    found = Padding(nn.Embedding(10, 4, padding_idx=0))
    found.note(IDS)
    found.note(torch.ones(2, 12, dtype=torch.int64))

    assert found.share == 4 / 32
