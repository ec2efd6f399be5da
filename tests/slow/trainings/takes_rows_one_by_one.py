import torch
import usual
from torch import nn
from torch.utils.data import Dataset

loss = usual.loss
baseline = {"batch_size": 512}


class Table(Dataset):
    def __init__(self):
        self.rows, self.targets = torch.randn(8192, 16), torch.randint(4, (8192,))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):  # planted
        return self.rows[index], self.targets[index]


def model():
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))


def dataset():
    return Table()
