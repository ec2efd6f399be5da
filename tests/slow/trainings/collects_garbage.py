import gc

import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset

KEPT = [{number: [number]} for number in range(20_000)]


def loss(model, batch):
    inputs, target = batch
    gc.collect()  # planted
    return F.cross_entropy(model(inputs), target)
