"""A training loop as anybody would write it, timed with one clock at both ends; knows nothing of autotune.

    python benchmarks/plain_loop.py examples/digits_cnn.py '{"batch_size": 64, ...}' 20

prints samples/s over the given seconds, after a tenth of them as warm-up.
"""

import contextlib
import importlib.util
import json
import sys
import time

import torch


def main(path: str, config: dict, seconds: float) -> float:
    torch.manual_seed(0)
    spec = importlib.util.spec_from_file_location("target", path)
    target = importlib.util.module_from_spec(spec)
    sys.modules["target"] = target
    spec.loader.exec_module(target)
    if hasattr(target, "setup"):
        target.setup()
    model = target.model().train()
    if config["channels_last"]:
        model = model.to(memory_format=torch.channels_last)
    optimizer = target.optimizer(model.parameters())
    workers = config["num_workers"]
    loader = torch.utils.data.DataLoader(
        target.dataset(),
        batch_size=config["batch_size"],
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        collate_fn=getattr(target, "collate", None),
    )
    dtype = config["amp_dtype"] and getattr(torch, config["amp_dtype"])
    scaler = torch.amp.GradScaler("cpu", enabled=dtype is torch.float16)
    count = config["gradient_accumulation_steps"]
    began, samples, step, measured_from = time.perf_counter(), 0, 0, None
    while True:
        for inputs, labels in loader:
            if config["channels_last"] and inputs.dim() == 4:
                inputs = inputs.contiguous(memory_format=torch.channels_last)
            with torch.autocast("cpu", dtype=dtype) if dtype else contextlib.nullcontext():
                loss = target.loss(model, (inputs, labels)) / count
            scaler.scale(loss).backward()
            step += 1
            samples += len(labels)
            if step % count:
                continue
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            now = time.perf_counter()
            if measured_from is None and now - began > seconds / 10:
                measured_from, samples = now, 0
            elif measured_from is not None and now - measured_from > seconds:
                return samples / (now - measured_from)


if __name__ == "__main__":
    print(main(sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3])), flush=True)
    import os

    os._exit(0)
