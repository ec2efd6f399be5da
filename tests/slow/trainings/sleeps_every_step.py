import time

import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset


def loss(model, batch):
    inputs, target = batch
    time.sleep(0.005)  # planted
    return F.cross_entropy(model(inputs), target)
