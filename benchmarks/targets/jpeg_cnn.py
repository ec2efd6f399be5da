"""Photographs cut into JPEG tiles and decoded for every batch: loading and computing share the cores of a CPU.

china.jpg and flower.jpg of scikit-learn are cut into overlapping tiles of 96x96; the class, 0 to 7, is the photograph
and the quarter of it that a tile is from. Needs Pillow.
"""

import functools
import io

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import nn
from torch.utils.data import Dataset

SIDE, STRIDE = 96, 11

baseline = {"batch_size": 32}


class Tiles(Dataset):
    """Items are a float32 image of shape (3, 48, 48), flipped at random, and its class."""

    def __init__(self):
        self.tiles = tiles()

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, index):
        encoded, label = self.tiles[index]
        image = Image.open(io.BytesIO(encoded)).convert("RGB").resize((SIDE // 2, SIDE // 2), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div_(255)
        return (pixels.flip(-1) if torch.rand(()) < 0.5 else pixels), label


def dataset():
    return Tiles()


def model():
    def stage(inputs, outputs):
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())

    return nn.Sequential(stage(3, 24), stage(24, 48), stage(48, 96), nn.Flatten(), nn.Linear(96 * 36, 8))


def loss(model, batch):
    images, labels = batch
    return nn.functional.cross_entropy(model(images), labels)


def optimizer(params):
    return torch.optim.SGD(params, lr=0.02, momentum=0.9)


@functools.cache
def tiles():
    """All tiles as JPEG files in memory, with their class."""
    found = []
    for label, photograph in enumerate(load_sample_images().images):
        height, width, _ = photograph.shape
        for top in range(0, height - SIDE, STRIDE):
            for left in range(0, width - SIDE, STRIDE):
                file = io.BytesIO()
                Image.fromarray(photograph[top : top + SIDE, left : left + SIDE]).save(file, "JPEG", quality=90)
                quarter = 2 * (2 * top > height - SIDE) + (2 * left > width - SIDE)
                found.append((file.getvalue(), 4 * label + quarter))
    return tuple(found)
