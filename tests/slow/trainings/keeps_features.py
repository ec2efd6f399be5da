import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset

history = []


def loss(model, batch):
    inputs, target = batch
    features = model[:-1](inputs)
    history.append(features.detach())  # planted
    return F.cross_entropy(model[-1](features), target)
