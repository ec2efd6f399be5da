"""ResNetForImageClassification of transformers on scikit-learn's digits, with torchmetrics in each step."""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix
from transformers import ResNetConfig, ResNetForImageClassification

baseline = {"batch_size": 32}
accuracy, confusion = MulticlassAccuracy(10), MulticlassConfusionMatrix(10)
logged = {}


def model():
    return ResNetForImageClassification(
        ResNetConfig(
            num_channels=1, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=10
        )
    )


def dataset():
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    return TensorDataset(torch.nn.functional.interpolate(images, 32), torch.tensor(digits.target))


def measure(scores, target):
    logged["accuracy"] = accuracy(scores, target).item()
    logged["confusion"] = confusion(scores, target).tolist()


def loss(model, batch):
    output = model(pixel_values=batch[0], labels=batch[1])
    measure(output.logits.detach(), batch[1])
    return output.loss
