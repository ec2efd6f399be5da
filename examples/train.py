"""A training script as people have it: arguments, a loop, an evaluation after each epoch. It knows nothing of autotune.

    python examples/train.py --batch-size 64
    autotune search -- python examples/train.py --batch-size 64

It trains the network of `digits_cnn.py`; the second line tunes this one as it is, by its arguments.
"""

from __future__ import annotations

import argparse

import digits_cnn
import torch
from torch.utils.data import DataLoader


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--accum", type=int, default=1, help="batches per optimizer step")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = digits_cnn.model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(
        digits_cnn.dataset(), batch_size=options.batch_size, shuffle=True, num_workers=options.workers, drop_last=True
    )
    held_out = next(iter(DataLoader(digits_cnn.validation(), batch_size=digits_cnn.HELD_OUT)))
    images, classes = [tensor.to(device) for tensor in held_out]
    for epoch in range(options.epochs):
        for number, batch in enumerate(loader, 1):
            batch = [tensor.to(device) for tensor in batch]
            with torch.autocast(device, torch.bfloat16, enabled=options.bf16):
                loss = digits_cnn.loss(model, batch) / options.accum
            loss.backward()
            if number % options.accum == 0:
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            accuracy = (model(images).argmax(dim=1) == classes).float().mean().item()
        model.train()
        print(f"epoch {epoch}: {accuracy:.1%} of {len(images)} held-out digits read correctly", flush=True)


if __name__ == "__main__":
    main()
