import torch
import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset

pool = {"features": torch.randn(4_000, 256)}


def loss(model, batch):
    inputs, target = batch
    pool["features"] = torch.cat([pool["features"], inputs.detach()])  # planted
    return F.cross_entropy(model(inputs), target)
