"""As a script that knows no framework, run by a command; prints a line every ten optimizer steps."""

import argparse
import contextlib
import itertools

import torch
from parts import BATCH, RATE, Crops, Net
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=BATCH)
parser.add_argument("--accum", type=int, default=1)
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--workers", type=int, default=0)
asked = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
model = Net().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
loader = DataLoader(
    Crops(), asked.batch_size, shuffle=True, drop_last=True, num_workers=asked.workers,
    persistent_workers=asked.workers > 0,
)  # fmt: skip
half = torch.autocast(device, torch.bfloat16) if asked.bf16 else contextlib.nullcontext()
batches = (batch for _ in itertools.count() for batch in loader)
for micro_batches, batch in enumerate(batches, 1):
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    with half:
        loss = model(**batch)["loss"] / asked.accum
    loss.backward()
    if micro_batches % asked.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
        if micro_batches // asked.accum % 10 == 0:
            print(f"step {micro_batches // asked.accum}", flush=True)
