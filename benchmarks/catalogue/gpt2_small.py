"""GPT-2 small that models made-up text of 1,024 tokens, from its configuration: nothing is downloaded."""

import os

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel

NEEDS = "transformers"
SMALL = bool(os.environ.get("CATALOGUE_SMALL"))
LENGTH, SAMPLES = (32, 128) if SMALL else (1024, 8192)
SIZES = {"n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 512, "n_positions": 64}


class Texts(Dataset):
    """Items are dictionaries with tokens and the same as labels, `(length,)` each."""

    def __init__(self, vocabulary):
        chance = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(vocabulary, (SAMPLES, LENGTH), generator=chance)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def configuration():
    return GPT2Config(use_cache=False, **(SIZES if SMALL else {}))


def dataset():
    return Texts(configuration().vocab_size)


def model():
    return GPT2LMHeadModel(configuration())


def loss(model, batch):
    return model(**batch).loss


def optimizer(params):
    return torch.optim.AdamW(params, lr=6e-4, weight_decay=0.1)
