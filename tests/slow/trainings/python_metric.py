import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import TensorDataset


def model():
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


def dataset():
    return TensorDataset(torch.randn(4096, 256), torch.randint(10, (4096,)))


def count_pairs(labels):
    pairs = 0
    for one in labels:
        for other in labels:
            pairs += one == other  # planted
    return pairs


def loss(model, batch):
    inputs, target = batch
    count_pairs(target.tolist() * 4)
    return F.cross_entropy(model(inputs), target)


baseline = {"batch_size": 256}
