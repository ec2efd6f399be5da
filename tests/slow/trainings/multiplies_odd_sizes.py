import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from usual import Rows

baseline = {"batch_size": 256}
INPUTS, WORDS = 7, 4097


def model():
    return nn.Linear(INPUTS, WORDS)


def dataset():
    return Rows(torch.randn(2048, INPUTS), torch.randint(4097, (2048,)))


collate = list


def loss(model, batch):
    inputs, target = batch
    scores = model(inputs)  # planted
    return F.cross_entropy(scores, target)
