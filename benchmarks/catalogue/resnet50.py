"""ResNet-50 on images that are already in memory: nothing to decode, so computing should be all of a step."""

import os

import timm
import torch
from torch import nn
from torch.utils.data import Dataset

NEEDS = "timm", "torchvision"
SMALL = bool(os.environ.get("CATALOGUE_SMALL"))
SIDE = 32 if SMALL else 224
SAMPLES, PICTURES, CLASSES = (256, 16, 10) if SMALL else (1_281_167, 256, 1000)  # as ImageNet has


class Images(Dataset):
    """Items are a float32 image of shape (3, side, side) and its class; a few pictures come again and again."""

    def __init__(self):
        chance = torch.Generator().manual_seed(0)
        self.pictures = torch.randn(PICTURES, 3, SIDE, SIDE, generator=chance)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self.pictures[index % PICTURES], index % PICTURES % CLASSES


def dataset():
    return Images()


def model():
    return timm.create_model("resnet50", pretrained=False, num_classes=CLASSES)


def loss(model, batch):
    images, labels = batch
    return nn.functional.cross_entropy(model(images), labels)


def optimizer(params):
    return torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=1e-4)
