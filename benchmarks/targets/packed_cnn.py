"""Images that are unpacked, cropped and turned for every batch: loading and computing share the cores of a CPU.

As with JPEG files one core unpacks two or three thousand a second; the packing is zlib's, which Python brings.
"""

import functools
import zlib

import torch
from torch import nn
from torch.utils.data import Dataset

SAMPLES, STORED, SIDE, SHADES, CLASSES = 1024, 128, 48, 32, 8

baseline = {"batch_size": 32}


class Packed(Dataset):
    """Items are a float32 image of shape (3, 48, 48), cropped, enlarged and flipped at random, and its class."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        pixels = torch.frombuffer(bytearray(zlib.decompress(packed()[index])), dtype=torch.uint8)
        image = pixels.view(3, STORED, STORED).float().div_(SHADES)
        side = int(torch.randint(STORED // 2, STORED, ()))
        top, left = (int(torch.randint(STORED - side + 1, ())) for _ in range(2))
        crop = image[None, :, top : top + side, left : left + side]
        image = nn.functional.interpolate(crop, size=SIDE, mode="bilinear", antialias=True)[0]
        return (image.flip(-1) if torch.rand(()) < 0.5 else image), index % CLASSES


def dataset():
    packed()
    return Packed()


def model():
    def stage(inputs, outputs):
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())

    return nn.Sequential(stage(3, 16), stage(16, 32), stage(32, 64), nn.Flatten(), nn.Linear(64 * 36, CLASSES))


def loss(model, batch):
    images, labels = batch
    return nn.functional.cross_entropy(model(images), labels)


def optimizer(params):
    return torch.optim.SGD(params, lr=0.02, momentum=0.9)


@functools.cache
def packed():
    """All images: smooth noise whose brightness tells the class."""
    chance = torch.Generator().manual_seed(0)
    coarse = torch.rand(SAMPLES, 3, 12, 12, generator=chance)
    coarse *= 0.5 + (torch.arange(SAMPLES) % CLASSES)[:, None, None, None] / (2 * CLASSES)
    images = []
    for each in coarse.split(256):
        fine = nn.functional.interpolate(each, size=STORED, mode="bilinear").mul(SHADES).byte()
        images += [zlib.compress(image.numpy().tobytes(), 1) for image in fine]
    return tuple(images)
