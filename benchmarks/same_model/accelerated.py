"""As a loop of Accelerate, run by a command; prints a line every ten optimizer steps."""

import argparse
import itertools

import torch
from accelerate import Accelerator
from parts import BATCH, RATE, Crops, Net
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=BATCH)
parser.add_argument("--gradient-accumulation-steps", type=int, default=1)
parser.add_argument("--mixed-precision", default="no", choices=["no", "bf16", "fp16"])
parser.add_argument("--num-workers", type=int, default=0)
asked = parser.parse_args()

accelerator = Accelerator(
    gradient_accumulation_steps=asked.gradient_accumulation_steps, mixed_precision=asked.mixed_precision
)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
loader = DataLoader(
    Crops(), asked.batch_size, shuffle=True, drop_last=True, num_workers=asked.num_workers,
    persistent_workers=asked.num_workers > 0,
)  # fmt: skip
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
steps = 0
for _ in itertools.count():
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch)["loss"])
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            steps += 1
            if steps % 10 == 0:
                print(f"step {steps}", flush=True)
