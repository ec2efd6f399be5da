import torch
import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset


def loss(model, batch):
    inputs, target = batch
    return F.cross_entropy(model(inputs), target)


def optimizer(model):
    return torch.optim.SGD(model[-1].parameters(), lr=0.01)  # planted
