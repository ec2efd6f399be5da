"""BERT-base that classifies sentences of 128 made-up tokens, from its configuration: nothing is downloaded."""

import os

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification

NEEDS = "transformers"
SMALL = bool(os.environ.get("CATALOGUE_SMALL"))
LENGTH, SAMPLES, CLASSES = (16, 256, 2) if SMALL else (128, 16384, 2)
SIZES = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128, "vocab_size": 512,
}  # fmt: skip


class Sentences(Dataset):
    """Items are dictionaries as a tokenizer's collator gives them, `(length,)` each."""

    def __init__(self, vocabulary):
        chance = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(vocabulary, (SAMPLES, LENGTH), generator=chance)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        tokens = self.tokens[index]
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens[0] % CLASSES}


def configuration():
    return BertConfig(num_labels=CLASSES, **(SIZES if SMALL else {}))


def dataset():
    return Sentences(configuration().vocab_size)


def model():
    return BertForSequenceClassification(configuration())


def loss(model, batch):
    return model(**batch).loss


def optimizer(params):
    return torch.optim.AdamW(params, lr=2e-5)
