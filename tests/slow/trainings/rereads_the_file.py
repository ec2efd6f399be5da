import json
import tempfile
from pathlib import Path

import torch
import usual
from torch.utils.data import Dataset

model = usual.model

folder = tempfile.TemporaryDirectory()


class Labelled(Dataset):
    def __init__(self):
        self.inputs, self.file = torch.randn(512, 256), Path(folder.name) / "labels.json"
        self.file.write_text(json.dumps({str(number): number % 10 for number in range(2048)}))

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        with self.file.open() as labels:
            return self.inputs[index], json.load(labels)[str(index)]  # planted


def dataset():
    return Labelled()
