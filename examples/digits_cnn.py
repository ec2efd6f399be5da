"""A small convolutional network on real handwritten digits: the shortest target that tunes everything.

    autotune check examples/digits_cnn.py
    autotune search examples/digits_cnn.py

The 1,797 scans of 8x8 pixels come with scikit-learn (Alpaydin and Kaynak 1998, UCI 80), so nothing is downloaded.
They are enlarged to 32x32, which gives convolutions something to do. 1,437 train, 360 are held out.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import Dataset

SIDE = 32
HELD_OUT = 360

baseline = {"batch_size": 64}  # what one would write without thinking; its global batch of 64 is kept


class Digits(Dataset[tuple[Tensor, int]]):
    """Items are a float32 image of shape (1, 32, 32), pixels in 0..1, and its class 0..9."""

    def __init__(self, scans: np.ndarray, classes: np.ndarray) -> None:
        self.scans = torch.from_numpy(scans).float().div(16)  # a scanned pixel counts 0..16 dark dots
        self.classes = classes.tolist()

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        enlarged = nn.functional.interpolate(self.scans[index, None, None], size=SIDE, mode="bilinear")
        return enlarged[0], self.classes[index]


def dataset() -> Digits:
    return Digits(*_split()[0])


def validation() -> Digits:
    return Digits(*_split()[1])


def model() -> nn.Module:
    return nn.Sequential(
        _block(1, 32),
        _block(32, 64),
        _block(64, 128),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, classes = batch
    return nn.functional.cross_entropy(model(images), classes)


def optimizer(params: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=2e-3)


def _block(channels: int, filters: int) -> nn.Module:
    """Convolution, normalisation, and half the height and width."""
    convolution = nn.Conv2d(channels, filters, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(filters), nn.ReLU(), nn.MaxPool2d(2))


def _split() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Scans and classes for training, then the held-out ones; the same at every call."""
    digits = load_digits()
    parts = train_test_split(digits.images, digits.target, test_size=HELD_OUT, random_state=0, stratify=digits.target)
    train_scans, held_scans, train_classes, held_classes = parts
    return (train_scans, train_classes), (held_scans, held_classes)
