import torch
import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset

WEIGHTS = [1.0 + (number % 7) for number in range(300_000)]


def loss(model, batch):
    inputs, target = batch
    weights = torch.tensor(WEIGHTS)  # planted
    return F.cross_entropy(model(inputs), target) * weights.mean()
