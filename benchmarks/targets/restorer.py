"""Noise taken out of images: every layer keeps the full resolution, so memory goes to activations."""

import torch
from torch import nn
from torch.utils.data import Dataset

SAMPLES, SIDE, WIDTH, NOISE = 2048, 64, 8, 0.1

baseline = {"batch_size": 16, "gradient_accumulation_steps": 8}


class Noisy(Dataset):
    """Items are a float32 image of shape (3, 64, 64) with noise, and the same without."""

    def __init__(self):
        chance = torch.Generator().manual_seed(0)
        self.coarse = torch.rand(SAMPLES, 3, 8, 8, generator=chance)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        clean = nn.functional.interpolate(self.coarse[index, None], size=SIDE, mode="bilinear")[0]
        return clean + NOISE * torch.randn(clean.shape), clean


def dataset():
    return Noisy()


def model():
    def stage(inputs):
        return nn.Sequential(nn.Conv2d(inputs, WIDTH, 3, padding=1), nn.BatchNorm2d(WIDTH), nn.GELU())

    return nn.Sequential(stage(3), stage(WIDTH), stage(WIDTH), nn.Conv2d(WIDTH, 3, 3, padding=1))


def loss(model, batch):
    noisy, clean = batch
    return nn.functional.mse_loss(noisy - model(noisy), clean)  # the network says what the noise is


def optimizer(params):
    return torch.optim.AdamW(params, lr=2e-3)
