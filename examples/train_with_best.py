"""A plain training loop that uses what a search of `digits_cnn.py` found, whatever it found.

    autotune search examples/digits_cnn.py
    python examples/train_with_best.py [STUDY]

Trains until the network reads 97 % of the 360 held-out digits, and fails if 30 epochs do not get there.
"""

from __future__ import annotations

import sys

import digits_cnn
import torch
from torch import nn
from torch.utils.data import DataLoader

import autotune

GOAL = 0.97
MOST_EPOCHS = 30


def train(tuned: autotune.Tuned) -> tuple[int, float]:
    """Optimizer steps taken, and the accuracy on the held-out digits after the last epoch."""
    torch.manual_seed(0)
    loader = DataLoader(digits_cnn.dataset(), shuffle=True, **tuned.dataloader_kwargs())
    held_out = next(iter(DataLoader(digits_cnn.validation(), batch_size=digits_cnn.HELD_OUT)))
    model = tuned.prepare(digits_cnn.model())
    optimizer = tuned.prepare_optimizer(digits_cnn.optimizer(model.parameters()))
    scaler = tuned.grad_scaler()
    accumulation = tuned["gradient_accumulation_steps"]
    micro_batches, reached = 0, 0.0  # counted across epochs: every step then takes the whole global batch
    for _ in range(MOST_EPOCHS):
        for batch in loader:
            micro_batches += 1
            with tuned.autocast():
                loss = digits_cnn.loss(model, tuned.to_device(batch)) / accumulation
            scaler.scale(loss).backward()
            if micro_batches % accumulation == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        reached = accuracy(model, tuned, held_out)
        if reached >= GOAL:
            break
    return micro_batches // accumulation, reached


@torch.no_grad()
def accuracy(model: nn.Module, tuned: autotune.Tuned, batch: list[torch.Tensor]) -> float:
    """Share of the batch that the model names correctly, 0..1."""
    images, classes = tuned.to_device(batch)
    model.eval()
    with tuned.autocast():
        named = model(images).argmax(dim=1)
    model.train()
    return (named == classes).float().mean().item()


def main() -> int:
    """0 if the goal was reached, else 1."""
    tuned = autotune.apply(sys.argv[1] if len(sys.argv) > 1 else "studies/digits_cnn")
    asked = {name: value for name, value in tuned.items() if value is not None and value is not False}
    print(f"using {asked} on {tuned.device}, all else as torch has it")
    steps, reached = train(tuned)
    print(f"{steps} optimizer steps, {reached:.1%} of {digits_cnn.HELD_OUT} held-out digits read correctly")
    return 0 if reached >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
