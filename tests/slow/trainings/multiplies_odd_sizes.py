import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import TensorDataset

baseline = {"batch_size": 256}
INPUTS, HIDDEN = 7, 4097


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.head = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, 16)

    def forward(self, inputs):
        hidden = self.wide(inputs)  # planted
        return self.head(F.relu(hidden))


model = Wide


def dataset():
    return TensorDataset(torch.randn(2048, INPUTS), torch.randint(16, (2048,)))


def loss(model, batch):
    inputs, target = batch
    return F.cross_entropy(model(inputs), target)
