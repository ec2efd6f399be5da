"""A small U-Net that says what noise was added to an image, as diffusion models are trained: convolutions, no head."""

import os

import torch
from torch import nn
from torch.utils.data import Dataset

NEEDS = ()
SMALL = bool(os.environ.get("CATALOGUE_SMALL"))
SIDE, WIDTH, SAMPLES, PICTURES = (16, 16, 256, 16) if SMALL else (64, 128, 16384, 512)


class Stage(nn.Module):
    """Two convolutions around which the input is added."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))
        self.second = nn.Sequential(nn.GroupNorm(8, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1))
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, images):
        """From (batch, inputs, side, side) to (batch, outputs, side, side)."""
        return self.second(self.first(images)) + self.shortcut(images)


class UNet(nn.Module):
    """Two halvings of the resolution, and back, with what was there before laid beside."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.down = nn.ModuleList([Stage(WIDTH, WIDTH), Stage(WIDTH, 2 * WIDTH)])
        self.middle = Stage(2 * WIDTH, 2 * WIDTH)
        self.up = nn.ModuleList([Stage(4 * WIDTH, WIDTH), Stage(2 * WIDTH, WIDTH)])
        self.head = nn.Conv2d(WIDTH, 3, 3, padding=1)

    def forward(self, images):
        """From (batch, 3, side, side) to the same shape."""
        hidden, kept = self.stem(images), []
        for stage in self.down:
            hidden = stage(hidden)
            kept.append(hidden)
            hidden = nn.functional.avg_pool2d(hidden, 2)
        hidden = self.middle(hidden)
        for stage in self.up:
            hidden = nn.functional.interpolate(hidden, scale_factor=2.0)
            hidden = stage(torch.cat([hidden, kept.pop()], dim=1))
        return self.head(hidden)


class Images(Dataset):
    """Items are an image with noise, and the noise, both of shape (3, side, side)."""

    def __init__(self):
        self.pictures = torch.rand(PICTURES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        noise = torch.randn(3, SIDE, SIDE)
        return self.pictures[index % PICTURES] + torch.rand(()) * noise, noise


def dataset():
    return Images()


def model():
    return UNet()


def loss(model, batch):
    noisy, noise = batch
    return nn.functional.mse_loss(model(noisy), noise)


def optimizer(params):
    return torch.optim.AdamW(params, lr=2e-4)
