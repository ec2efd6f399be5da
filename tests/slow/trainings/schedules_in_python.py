import math

import torch
import usual

model, dataset, loss = usual.model, usual.dataset, usual.loss


def factor(step):
    warm = 0.0
    for number in range(20_000):
        warm += math.cos(number / 20_000)  # planted
    return warm / 20_000


def optimizer(params):
    return torch.optim.SGD(params, lr=0.01)


def scheduler(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
