"""A small BERT that fills in masked tokens: one optimizer step takes about a second on two cores."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

SAMPLES, TOKENS, WIDTH, HEADS, LAYERS, VOCABULARY, MASK, MASKED = 4096, 64, 256, 4, 4, 1000, 0, 0.15

baseline = {"batch_size": 64}


class Encoder(nn.Module):
    """Logits of shape (batch, token, vocabulary) for every place of a text."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Parameter(torch.zeros(TOKENS, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))

    def forward(self, text):
        """From (batch, token)."""
        return self.head(self.layers(self.tokens(text) + self.places))


def dataset():
    """Texts in which every token is the one before plus a step that the text keeps, so that gaps can be filled."""
    chance = torch.Generator().manual_seed(0)
    first = torch.randint(1, VOCABULARY, (SAMPLES, 1), generator=chance)
    step = torch.randint(1, 8, (SAMPLES, 1), generator=chance)
    text = 1 + (first + step * torch.arange(TOKENS)) % (VOCABULARY - 1)
    hidden = torch.rand(SAMPLES, TOKENS, generator=chance) < MASKED
    return TensorDataset(text.masked_fill(hidden, MASK), text.masked_fill(~hidden, -100))


def model():
    return Encoder()


def loss(model, batch):
    text, hidden = batch
    return nn.functional.cross_entropy(model(text).flatten(0, 1), hidden.flatten())


def optimizer(params):
    return torch.optim.AdamW(params, lr=1e-3)
