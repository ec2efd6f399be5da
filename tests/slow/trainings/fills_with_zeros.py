import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import TensorDataset


def model():
    return nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 10))


def dataset():
    return TensorDataset(torch.randn(512, 1024), torch.randint(10, (512,)))


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


baseline = {"batch_size": 8}
