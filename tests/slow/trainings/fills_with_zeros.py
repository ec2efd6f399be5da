import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from usual import Rows


def model():
    return nn.Sequential(nn.EmbeddingBag(50_000, 32), nn.Linear(32, 10))


def dataset():
    return Rows(torch.randint(50_000, (4096, 16)), torch.randint(10, (4096,)))


collate = list


def step(model, batch, optimizers):
    (optimizer,) = optimizers
    inputs, target = batch
    optimizer.zero_grad(set_to_none=False)  # planted
    loss = F.cross_entropy(model(inputs), target)
    optimizer.backward(loss)
    optimizer.step()
    return loss.detach()


def optimizer(params):
    return torch.optim.SGD(params, lr=0.01)
