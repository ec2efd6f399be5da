import torch
from torch import nn
from usual import Rows

torch.use_deterministic_algorithms(True)  # planted


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x):
        seen = self.first(x)
        buffer = torch.empty(2_000_000)
        buffer[: seen.numel()] = seen.detach().flatten()
        return self.last(seen) + buffer[0]


def model():
    return Wide()


def dataset():
    return Rows(torch.randn(1024, 64), torch.randint(10, (1024,)))


collate = list
