import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from usual import Rows


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.forward_twice = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.attend(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.join(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.forward_twice(self.behind(x))


class Transformer(nn.Module):
    def __init__(self, words=500, width=128):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.Sequential(Block(width, 4), Block(width, 4))
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.blocks(self.words(tokens)))


def model():
    return Transformer()


def dataset():
    tokens = torch.randint(500, (1024, 65))
    return Rows(tokens[:, :-1], tokens[:, 1:])


collate = list


def loss(model, batch):
    inputs, target = batch
    return F.cross_entropy(model(inputs).flatten(0, 1), target.flatten())


def optimizer(params):
    return torch.optim.AdamW(params, lr=1e-3)


baseline = {"batch_size": 16}
