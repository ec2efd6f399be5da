import time

import torch
import usual
from torch.utils.data import Dataset

model = usual.model


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


def dataset():
    return Pictures()
