import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset


def loss(model, batch):
    inputs, target = batch
    features = model[:-1](inputs)
    wide = features.repeat(1, 64)
    kept = wide.clone()  # planted
    return F.cross_entropy(model[-1](features), target) + kept.mean() * 1e-3
