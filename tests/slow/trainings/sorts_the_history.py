import random

import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset

history = [random.random() for _ in range(50_000)]


def running_median():
    return sorted(history, key=lambda one: abs(one - 0.5))[0]  # planted


def loss(model, batch):
    inputs, target = batch
    running_median()
    return F.cross_entropy(model(inputs), target)
