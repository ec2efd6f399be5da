import time

import torch
from torch import nn
from torch.utils.data import Dataset


class Pictures(Dataset):
    def __init__(self):
        self.inputs, self.targets = torch.randn(4096, 256), torch.randint(10, (4096,))

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):  # planted
        if index % 32 == 0:
            until = time.perf_counter() + 0.004
            while time.perf_counter() < until:
                pass
        return self.inputs[index], self.targets[index]


def model():
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


def dataset():
    return Pictures()


baseline = {"batch_size": 256}
