import subprocess

import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset


def memory_in_use():  # as `nvidia-smi` would tell
    return subprocess.run(["true"], capture_output=True, check=False).stdout  # planted


def loss(model, batch):
    inputs, target = batch
    memory_in_use()
    return F.cross_entropy(model(inputs), target)
