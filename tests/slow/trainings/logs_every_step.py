import json
import tempfile

import usual
from torch.nn import functional as F  # noqa: N812

model, dataset = usual.model, usual.dataset

log = tempfile.TemporaryFile("w")  # noqa: SIM115  # as long as the process


def loss(model, batch):
    inputs, target = batch
    scores = model(inputs)
    rows = [{"row": row, "scores": [0.5] * 100} for row in range(200)]
    log.seek(0)
    json.dump(rows, log)  # planted
    log.flush()
    return F.cross_entropy(scores, target)
