"""ViTForImageClassification with ViTImageProcessor on each sample, as transformers' image example has it."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from transformers import ViTConfig, ViTForImageClassification
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

baseline = {"batch_size": 16}


class Digits(torch.utils.data.Dataset):
    def __init__(self):
        digits = load_digits()
        self.images = np.repeat((digits.images * 15).astype(np.uint8)[..., None], 3, axis=-1)
        self.target = digits.target
        self.processor = ViTImageProcessorPil(size={"height": 64, "width": 64})

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        pixels = self.processor(self.images[index], return_tensors="pt")["pixel_values"][0]
        return {"pixel_values": pixels, "labels": int(self.target[index])}


def model():
    return ViTForImageClassification(
        ViTConfig(
            image_size=64, patch_size=8, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=128, num_labels=10,
        )
    )  # fmt: skip


def dataset():
    return Digits()


def loss(model, batch):
    return model(**batch).loss
