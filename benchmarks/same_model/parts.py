"""What the five forms share: a small network on crops of synthetic pictures, whose loading takes a third of a step."""

import torch
from torch import nn
from torch.utils.data import Dataset

BATCH, RATE = 64, 1e-3
SIDE, SAMPLES, CLASSES = 48, 4096, 10


class Crops(Dataset):
    """Items are dicts of a float32 picture of shape (3, 32, 32), cropped, normalised, and its class."""

    def __init__(self):
        draws = torch.Generator().manual_seed(0)
        self.pictures = torch.randint(256, (256, 3, SIDE, SIDE), dtype=torch.uint8, generator=draws)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        picture = self.pictures[index % len(self.pictures)].float().div(255)
        top = index % (SIDE - 32)
        crop = picture[:, top : top + 32, top : top + 32]
        return {"pixels": (crop - crop.mean()) / (crop.std() + 1e-3), "labels": index % CLASSES}


class Net(nn.Module):
    """Returns a dict of loss and logits, as models of transformers do."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 64, CLASSES),
        )  # fmt: skip

    def forward(self, pixels, labels):
        """Loss and logits of a batch."""
        logits = self.body(pixels)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}
