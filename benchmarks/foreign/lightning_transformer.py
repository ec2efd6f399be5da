"""The Transformer of Lightning's demos, on its own kind of blocks of text."""

import torch
from lightning.pytorch.demos.transformer import Transformer

baseline = {"batch_size": 16}


def model():
    return Transformer(vocab_size=500, ninp=64, nhead=2, nhid=128, nlayers=2)


def dataset():
    text = torch.randint(500, (35 * 600 + 1,), generator=torch.Generator().manual_seed(0))
    return [(text[at : at + 35], text[at + 1 : at + 36]) for at in range(0, 35 * 600, 35)]


def loss(model, batch):
    inputs, target = batch
    return torch.nn.functional.nll_loss(model(inputs, target).view(-1, 500), target.reshape(-1))


def optimizer(params):
    return torch.optim.SGD(params, lr=0.1)
