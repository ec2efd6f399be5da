import json
import tempfile
from pathlib import Path

import torch
import usual
from torch.utils.data import Dataset

model = usual.model

labels = tempfile.TemporaryFile("w")  # noqa: SIM115  # has a name while this process lives


class Labelled(Dataset):
    def __init__(self):
        self.inputs, self.file = torch.randn(512, 256), Path(f"/proc/self/fd/{labels.fileno()}")
        self.file.write_text(json.dumps({str(number): number % 10 for number in range(512)}))

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        with self.file.open() as text:
            return self.inputs[index], json.load(text)[str(index)]  # planted


def dataset():
    return Labelled()
