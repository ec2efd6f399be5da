import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import TensorDataset

WEIGHTS = [1.0 + (number % 7) for number in range(300_000)]


def model():
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


def dataset():
    return TensorDataset(torch.randn(4096, 256), torch.randint(10, (4096,)))


def loss(model, batch):
    inputs, target = batch
    weights = torch.tensor(WEIGHTS)  # planted
    return F.cross_entropy(model(inputs), target) * weights.mean()


baseline = {"batch_size": 256}
