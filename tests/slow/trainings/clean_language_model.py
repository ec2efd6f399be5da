import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from usual import Rows


class LanguageModel(nn.Module):
    def __init__(self, words=1000, width=128, length=64):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, tokens):
        hidden = self.words(tokens) + self.places
        return self.head(self.layers(hidden, mask=self.mask, is_causal=True))


def model():
    return LanguageModel()


def dataset():
    tokens = torch.randint(1000, (512, 65))
    return Rows(tokens[:, :-1], tokens[:, 1:])


collate = list


def loss(model, batch):
    inputs, target = batch
    return F.cross_entropy(model(inputs).flatten(0, 1), target.flatten())


def optimizer(params):
    return torch.optim.AdamW(params, lr=1e-3)


def scheduler(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 100))


clip_grad_norm = 1.0
baseline = {"batch_size": 16}
