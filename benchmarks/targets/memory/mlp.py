"""A wide perceptron: parameters and optimizer state weigh as much as activations."""

import itertools

import torch
from torch import nn


def model():
    widths = (256, 1024, 1024, 1024, 10)
    layers = [layer for one, two in itertools.pairwise(widths) for layer in (nn.Linear(one, two), nn.GELU())]
    return nn.Sequential(*layers[:-1])


def batch(batch_size):
    return torch.randn(batch_size, 256), torch.randint(10, (batch_size,))


def optimizer(params):
    return torch.optim.AdamW(params)
