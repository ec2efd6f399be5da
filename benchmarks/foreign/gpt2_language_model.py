"""GPT2LMHeadModel of transformers on blocks of random tokens, with perplexity printed as its examples log it."""

import math

import torch
from transformers import GPT2Config, GPT2LMHeadModel

baseline = {"batch_size": 8}
history = []


class Blocks(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        ids = torch.randint(1000, (64,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}


def model():
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=1000, n_positions=64, n_embd=128, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    )


def dataset():
    return Blocks()


def optimizer(params):
    return torch.optim.AdamW(params, lr=5e-5)


def loss(model, batch):
    output = model(**batch)
    history.append(math.exp(output.loss.item()))
    return output.loss
