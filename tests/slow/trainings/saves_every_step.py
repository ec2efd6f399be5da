import io

import torch
import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset


def loss(model, batch):
    inputs, target = batch
    torch.save(model.state_dict(), io.BytesIO())  # planted
    return F.cross_entropy(model(inputs), target)
