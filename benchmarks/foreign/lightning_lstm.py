"""The SimpleLSTM of Lightning's demos, with hidden states handed on as its training_step does."""

import torch
from lightning.pytorch.demos.lstm import SimpleLSTM

baseline = {"batch_size": 16}
kept = {"hidden": None}


def model():
    return SimpleLSTM(vocab_size=500, ninp=64, nhid=64, nlayers=2)


def dataset():
    text = torch.randint(500, (35 * 600 + 1,), generator=torch.Generator().manual_seed(0))
    return [(text[at : at + 35], text[at + 1 : at + 36]) for at in range(0, 35 * 600, 35)]


def loss(model, batch):
    inputs, target = batch
    if kept["hidden"] is None or kept["hidden"][0].size(1) != inputs.size(0):
        kept["hidden"] = model.init_hidden(inputs.size(0))
    kept["hidden"] = tuple(one.detach() for one in kept["hidden"])
    output, kept["hidden"] = model(inputs, kept["hidden"])
    return torch.nn.functional.nll_loss(output, target.reshape(-1))


def optimizer(params):
    return torch.optim.SGD(params, lr=20)
