import json
import tempfile
from pathlib import Path

import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset

folder = tempfile.TemporaryDirectory()


def loss(model, batch):
    inputs, target = batch
    scores = model(inputs)
    rows = [{"row": row, "scores": [0.5] * 100} for row in range(200)]
    with Path(folder.name, "log.json").open("w") as log:
        json.dump(rows, log)  # planted
    return F.cross_entropy(scores, target)
