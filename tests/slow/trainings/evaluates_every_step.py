import torch
import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset

seen = {}


def loss(model, batch):
    inputs, target = batch
    with torch.no_grad():
        seen["correct"] = model(inputs).argmax(1) == target  # planted
    return F.cross_entropy(model(inputs), target)
