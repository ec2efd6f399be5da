"""Many parameters for little computing: an exchange of gradients shows."""

import torch
from torch import nn

WIDTH = 512


def model():
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(4)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def batch(batch_size):
    return torch.randn(batch_size, WIDTH), torch.randint(10, (batch_size,))
