import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from usual import Rows

state = {"hidden": torch.zeros(32, 64)}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.head = nn.Linear(128, 64), nn.Linear(64, 10)

    def forward(self, x):
        state["hidden"] = torch.tanh(self.mix(torch.cat([x, state["hidden"]], dim=1)))
        return self.head(state["hidden"])


def model():
    return Recurrent()


def dataset():
    return Rows(torch.randn(1024, 64), torch.randint(10, (1024,)))


collate = list


def optimizer(model):
    return torch.optim.SGD(model.head.parameters(), lr=0.01)


def step(model, batch, optimizers):
    (optimizer,) = optimizers
    inputs, target = batch
    loss = F.cross_entropy(model(inputs), target)
    optimizer.zero_grad()
    optimizer.backward(loss, retain_graph=True)  # planted
    optimizer.step()
    return loss.detach()


baseline = {"batch_size": 32}
