import torch
import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset

history = []


def loss(model, batch):
    inputs, target = batch
    scores = model(inputs)
    distances = torch.cdist(inputs, inputs).detach()
    history[:] = distances.repeat(32, 1).tolist()  # planted
    return F.cross_entropy(scores, target)
