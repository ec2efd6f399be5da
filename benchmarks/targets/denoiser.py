"""Noise taken out of photographs: every layer keeps the full resolution, so memory goes to activations.

china.jpg and flower.jpg of scikit-learn are cut into tiles of 64x64, to which noise is added. Needs Pillow.
"""

import functools

import torch
from sklearn.datasets import load_sample_images
from torch import nn
from torch.utils.data import Dataset

SIDE, STRIDE, WIDTH, NOISE = 64, 24, 8, 0.1

baseline = {"batch_size": 16, "gradient_accumulation_steps": 8}


class NoisyTiles(Dataset):
    """Items are a float32 image of shape (3, 64, 64) with noise, and the same without."""

    def __init__(self):
        self.tiles = tiles()

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, index):
        clean = self.tiles[index]
        return clean + NOISE * torch.randn(clean.shape), clean


def dataset():
    return NoisyTiles()


def model():
    def stage(inputs):
        return nn.Sequential(nn.Conv2d(inputs, WIDTH, 3, padding=1), nn.BatchNorm2d(WIDTH), nn.GELU())

    return nn.Sequential(stage(3), stage(WIDTH), stage(WIDTH), nn.Conv2d(WIDTH, 3, 3, padding=1))


def loss(model, batch):
    noisy, clean = batch
    return nn.functional.mse_loss(noisy - model(noisy), clean)  # the network says what the noise is


def optimizer(params):
    return torch.optim.AdamW(params, lr=2e-3)


@functools.cache
def tiles():
    """All tiles, of shape (tile, 3, 64, 64), pixels in 0..1."""
    photographs = [
        torch.from_numpy(image.copy()).permute(2, 0, 1).float().div(255) for image in load_sample_images().images
    ]
    cut = [image.unfold(1, SIDE, STRIDE).unfold(2, SIDE, STRIDE).permute(1, 2, 0, 3, 4) for image in photographs]
    return torch.cat([each.reshape(-1, 3, SIDE, SIDE) for each in cut])
