"""Much computing for few parameters: an exchange of gradients hides behind it."""

import torch
from torch import nn


def model():
    layers = [nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()) for _ in range(6)]
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    )


def batch(batch_size):
    return torch.randn(batch_size, 3, 32, 32), torch.randint(10, (batch_size,))
