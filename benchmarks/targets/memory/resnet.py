"""Residual blocks with BatchNorm on 64 x 64 images."""

import torch
from torch import nn


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inner, outer, stride):
        super().__init__()
        self.first = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outer) for _ in range(2))
        self.shortcut = (
            nn.Conv2d(inner, outer, 1, stride, bias=False) if stride > 1 or inner != outer else nn.Identity()
        )

    def forward(self, images):
        """`images`: (batch, channels, height, width)."""
        inside = torch.relu(self.norms[0](self.first(images)))
        return torch.relu(self.norms[1](self.second(inside)) + self.shortcut(images))


def model():
    blocks = [Block(one, two, stride) for one, two, stride in ((32, 32, 1), (32, 64, 2), (64, 128, 2), (128, 256, 2))]
    stem = [nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100))


def batch(batch_size):
    return torch.randn(batch_size, 3, 64, 64), torch.randint(100, (batch_size,))


def optimizer(params):
    return torch.optim.AdamW(params)
