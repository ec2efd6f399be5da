"""Plain convolutions with BatchNorm on 64 x 64 images."""

import torch
from torch import nn


def model():
    layers = []
    for one, two in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(one, two, 3, padding=1), nn.BatchNorm2d(two), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 8 * 8, 100))


def batch(batch_size):
    return torch.randn(batch_size, 3, 64, 64), torch.randint(100, (batch_size,))


def optimizer(params):
    return torch.optim.AdamW(params)
