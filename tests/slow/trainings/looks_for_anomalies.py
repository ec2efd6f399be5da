import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from usual import Rows

torch.autograd.set_detect_anomaly(True)  # planted


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(24))

    def forward(self, x):
        for layer in self.layers:
            x = x + F.gelu(layer(x)) * 0.1
        return x


def model():
    return Deep()


def dataset():
    return Rows(torch.randn(1024, 64), torch.randint(10, (1024,)))


collate = list


baseline = {"batch_size": 32}
