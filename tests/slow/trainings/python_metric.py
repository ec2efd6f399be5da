import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset


def count_pairs(labels):
    pairs = 0
    for one in labels:
        for other in labels:
            pairs += one == other  # planted
    return pairs


def loss(model, batch):
    inputs, target = batch
    count_pairs(target.tolist() * 4)
    return F.cross_entropy(model(inputs), target)
