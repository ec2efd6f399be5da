import time

import torch
import usual
from torch.utils.data import Dataset

model = usual.model
baseline = {"batch_size": 8, "num_workers": 4}


class Pictures(Dataset):
    """From a store that now and then answers late: waiting needs no core, so four workers wait for four."""

    def __init__(self):
        self.inputs, self.targets = torch.randn(4096, 256), torch.randint(10, (4096,))

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):  # planted
        time.sleep(0.4 if index % 64 == 0 else 0.002)
        return self.inputs[index], self.targets[index]


def dataset():
    return Pictures()
