"""A small GPT on 128 tokens: four blocks of width 256."""

import torch
from torch import nn
from torch.nn import functional

TOKENS, WIDTH, VOCABULARY = 128, 256, 4000


class Block(nn.Module):
    """Attention and a perceptron, each behind a norm."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.inside = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        """`x`: (batch, tokens, width)."""
        batch, tokens, _ = x.shape
        heads = self.mixed(self.norms[0](x)).view(batch, tokens, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.inside(self.norms[1](x))


class Transformer(nn.Module):
    """Predicts the next token."""

    def __init__(self):
        super().__init__()
        self.embedding, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Parameter(torch.zeros(TOKENS, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        """Logits of (batch, tokens)."""
        x = self.embedding(tokens) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def model():
    return Transformer()


def batch(batch_size):
    return torch.randint(VOCABULARY, (batch_size, TOKENS + 1))


def loss(model, batch):
    return functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def optimizer(params):
    return torch.optim.AdamW(params)
