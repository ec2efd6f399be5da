"""A two-layer LSTM that classifies sequences of 64 steps."""

import torch
from torch import nn


class Classifier(nn.Module):
    """The last step of the recurrent output decides."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(2000, 128), nn.Linear(256, 10)
        self.recurrent = nn.LSTM(128, 256, num_layers=2, batch_first=True)

    def forward(self, tokens):
        """Logits of (batch, steps)."""
        return self.head(self.recurrent(self.embedding(tokens))[0][:, -1])


def model():
    return Classifier()


def batch(batch_size):
    return torch.randint(2000, (batch_size, 64)), torch.randint(10, (batch_size,))


def optimizer(params):
    return torch.optim.AdamW(params)
