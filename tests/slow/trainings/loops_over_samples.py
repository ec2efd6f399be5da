import torch
from torch import nn
from usual import Rows


class BySample(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(256, 1024), nn.Linear(1024, 10)

    def forward(self, x):
        hidden = torch.relu(self.body(x))
        scores = []
        for row in range(len(x)):
            scores.append(self.head(hidden[row]))  # planted
        return torch.stack(scores)


def model():
    return BySample()


def dataset():
    return Rows(torch.randn(2048, 256), torch.randint(10, (2048,)))


collate = list


baseline = {"batch_size": 128}
