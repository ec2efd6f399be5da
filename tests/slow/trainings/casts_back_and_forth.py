import torch
import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset


def loss(model, batch):
    inputs, target = batch
    features = model[:-1](inputs).repeat(1, 16)
    features = features.to(torch.bfloat16).to(torch.float32)  # planted
    return F.cross_entropy(model[-1](features[:, :1024]), target) + features.mean() * 1e-3
