"""A residual network on images that are already in memory: computing is nearly all of a step."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

SAMPLES, SIDE, WIDTH = 8192, 32, 32

baseline = {"batch_size": 16}


class Block(nn.Module):
    """Two convolutions around which the input is added."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(2))
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, images):
        """From (batch, inputs, side, side) to (batch, outputs, side / stride, side / stride)."""
        inner = torch.relu(self.norms[0](self.first(images)))
        return torch.relu(self.norms[1](self.second(inner)) + self.shortcut(images))


def dataset():
    """Noise whose mean tells the class, so that there is something to learn."""
    chance = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (SAMPLES,), generator=chance)
    images = torch.randn(SAMPLES, 3, SIDE, SIDE, generator=chance) + labels[:, None, None, None] / 10
    return TensorDataset(images, labels)


def model():
    return nn.Sequential(
        nn.Conv2d(3, WIDTH, 3, 1, 1, bias=False),
        Block(WIDTH, WIDTH, 1),
        Block(WIDTH, 2 * WIDTH, 2),
        Block(2 * WIDTH, 4 * WIDTH, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * WIDTH, 10),
    )


def loss(model, batch):
    images, labels = batch
    return nn.functional.cross_entropy(model(images), labels)


def optimizer(params):
    return torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=5e-4)
