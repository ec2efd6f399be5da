import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from usual import Rows


class Tagger(nn.Module):
    def __init__(self, words=2000, width=128, tags=12):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.recurrent = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, tags)

    def forward(self, tokens):
        return self.head(self.recurrent(self.words(tokens))[0])


def model():
    return Tagger()


def dataset():
    return Rows(torch.randint(2000, (512, 32)), torch.randint(12, (512, 32)))


collate = list


def optimizer(params):
    return torch.optim.Adam(params, lr=1e-3)


def step(model, batch, optimizers):
    (optimizer,) = optimizers
    tokens, tags = batch
    loss = F.cross_entropy(model(tokens).flatten(0, 1), tags.flatten())
    optimizer.zero_grad()
    optimizer.backward(loss)
    optimizer.step()
    return loss.detach()


baseline = {"batch_size": 32}
