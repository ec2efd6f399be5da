"""A BERT of transformers with many small parameters: 12 layers of width 64. Needs transformers."""

import torch
from transformers import BertConfig, BertForMaskedLM

SAMPLES, TOKENS, VOCABULARY = 4096, 32, 500
SIZES = {"hidden_size": 64, "num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 128}

baseline = {"batch_size": 16}


class Texts(torch.utils.data.Dataset):
    """Texts of random tokens, which are their own labels."""

    def __init__(self):
        self.tokens = torch.randint(VOCABULARY, (SAMPLES, TOKENS), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def dataset():
    return Texts()


def model():
    return BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, max_position_embeddings=TOKENS, **SIZES))


def optimizer(params):
    return torch.optim.AdamW(params, lr=1e-3)
