import numpy as np
import torch
import usual
from torch.utils.data import Dataset

model = usual.model


class Signals(Dataset):
    def __init__(self):
        self.inputs = np.random.default_rng(0).normal(size=(1024, 256)).astype(np.float32)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index], index % 10


def dataset():
    return Signals()


def collate(samples):
    inputs = torch.tensor([inputs for inputs, _ in samples])  # planted
    return inputs, torch.as_tensor([target for _, target in samples])
