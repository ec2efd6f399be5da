from copy import deepcopy

import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset

earlier = {}


def loss(model, batch):
    inputs, target = batch
    earlier["model"] = deepcopy(model)  # planted
    return F.cross_entropy(model(inputs), target)
