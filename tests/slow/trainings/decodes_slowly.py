import torch
import usual
from torch.utils.data import Dataset

model = usual.model


def decode(line):
    return [float(word) for word in line.split(",")]  # planted


class Lines(Dataset):
    def __init__(self):
        self.lines = [",".join("0.25" for _ in range(1024)) for _ in range(512)]

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        return torch.tensor(decode(self.lines[index])[:256]), index % 10


def dataset():
    return Lines()
