"""GPT-2 of the transformers library, from a small configuration; needs that library, and no download."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def model():
    return GPT2LMHeadModel(GPT2Config(vocab_size=8000, n_positions=128, n_embd=256, n_layer=4, n_head=4))


def batch(batch_size):
    tokens = torch.randint(8000, (batch_size, 128))
    return {"input_ids": tokens, "labels": tokens}
