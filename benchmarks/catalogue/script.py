"""A training of the catalogue in a script of its own, as people have them: arguments, its own loop, on the GPU if any.

    python benchmarks/catalogue/script.py unet --batch-size 32
    autotune search -- python benchmarks/catalogue/script.py unet --batch-size 32

It knows nothing of autotune. Its model, data, loss and optimizer are those of the file beside it that it names.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from itertools import count

import torch
from torch.utils.data import DataLoader


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", help="unet, gpt2_small, ...")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--accum", type=int, default=1, help="batches per optimizer step")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    training = import_module(options.name)
    torch.manual_seed(0)
    model = training.model().to(device)
    optimizer = training.optimizer(model.parameters())
    loader = DataLoader(
        training.dataset(), options.batch_size, shuffle=True, num_workers=options.workers, drop_last=True,
        pin_memory=device.type == "cuda",
    )  # fmt: skip
    for epoch in count():
        for number, batch in enumerate(loader, 1):
            batch = moved(batch, device)
            with torch.autocast(device.type, torch.bfloat16, enabled=options.bf16):
                loss = training.loss(model, batch) / options.accum
            loss.backward()
            if number % options.accum == 0:
                optimizer.step()
                optimizer.zero_grad()
        print(f"epoch {epoch}: the last loss was {loss.item() * options.accum:.4f}", flush=True)


def moved(batch, device):  # type: ignore[no-untyped-def]  # whatever the training's dataset yields
    """The same with its tensors on `device`."""
    if isinstance(batch, dict):
        return {name: moved(part, device) for name, part in batch.items()}
    if isinstance(batch, list | tuple):
        return [moved(part, device) for part in batch]
    return batch.to(device, non_blocking=True)


if __name__ == "__main__":
    main()
