import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from usual import Rows


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256))
        self.critic = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))


def model():
    return Pair()


def dataset():
    return Rows(torch.randn(1024, 256))


collate = list


def optimizer(model):
    return [torch.optim.Adam(one.parameters(), lr=1e-4) for one in (model.generator, model.critic)]


def step(model, batch, optimizers):
    generator, critic = optimizers
    (real,) = batch
    made = model.generator(torch.randn(len(real), 64))
    critic.zero_grad()
    critic_loss = F.softplus(model.critic(made.detach())).mean() + F.softplus(-model.critic(real)).mean()
    critic.backward(critic_loss)
    critic.step()
    generator.zero_grad()
    loss = F.softplus(-model.critic(made)).mean()
    generator.backward(loss)  # planted
    generator.step()
    return loss.detach()
