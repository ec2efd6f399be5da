import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from usual import Rows


def model():
    return nn.Sequential(
        nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    ).double()


def dataset():
    return Rows(torch.randn(4096, 256), torch.randint(10, (4096,)))


collate = list


def loss(model, batch):
    inputs, target = batch
    scores = model(inputs.double())  # planted
    return F.cross_entropy(scores, target)


baseline = {"batch_size": 256}
