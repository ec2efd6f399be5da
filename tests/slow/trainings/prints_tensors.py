import torch
import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset

torch.set_printoptions(threshold=5_000)


def loss(model, batch):
    inputs, target = batch
    scores = model(inputs)
    print("scores", scores.detach())  # planted
    return F.cross_entropy(scores, target)
