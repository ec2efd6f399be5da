"""ResNet-50 on JPEG files that are decoded, cropped and flipped for every batch: what ImageNet asks of a loader."""

import io

import numpy as np
import torch
from PIL import Image
from resnet50 import CLASSES, PICTURES, SAMPLES, SIDE, loss, model, optimizer  # noqa: F401 - agreed names
from torch.utils.data import Dataset

NEEDS = "timm", "torchvision", "PIL"
WIDTH = SIDE * 8 // 7  # 256 for 224, as in the usual recipes
QUALITY = 90


class Photographs(Dataset):
    """Items are a float32 image of shape (3, side, side), cropped and flipped at random, and its class."""

    def __init__(self):
        self.files = files()

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.files[index % PICTURES])).convert("RGB")
        left, top = (int(torch.randint(WIDTH - SIDE + 1, ())) for _ in range(2))
        pixels = np.asarray(image.crop((left, top, left + SIDE, top + SIDE)))
        tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1).float().div_(127.5).sub_(1)
        return (tensor.flip(-1) if torch.rand(()) < 0.5 else tensor), index % PICTURES % CLASSES


def dataset():
    return Photographs()


def files():
    """Soft pictures with some noise, encoded once: they take as long to decode as photographs of their size."""
    chance, found = np.random.default_rng(0), []
    for _ in range(PICTURES):
        soft = Image.fromarray(chance.integers(0, 256, (16, 16, 3), dtype=np.uint8)).resize((WIDTH, WIDTH))
        noisy = np.asarray(soft, dtype=np.int16) + chance.integers(-8, 9, (WIDTH, WIDTH, 3))
        file = io.BytesIO()
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=QUALITY)
        found.append(file.getvalue())
    return tuple(found)
