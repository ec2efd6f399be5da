"""As a file of functions; the plain loop of the benchmarks trains it, too."""

import torch
from parts import BATCH, RATE, Crops, Net

baseline = {"batch_size": BATCH}
model, dataset = Net, Crops


def loss(model, batch):
    return model(**batch)["loss"]


def optimizer(params):
    return torch.optim.AdamW(params, lr=RATE)
