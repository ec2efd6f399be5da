"""A training loop as anybody would write it, timed with one clock at both ends; knows nothing of autotune.

    python benchmarks/plain_loop.py examples/digits_cnn.py '{"batch_size": 64}' 20 1000

prints samples/s over at least that many seconds and optimizer steps, after a tenth of the seconds as warm-up. The JSON
is a recommended configuration; what it leaves out is PyTorch's default. A fifth argument is a memory limit in bytes,
enforced by the kernel for this process and each loader worker.
"""

import contextlib
import importlib.util
import json
import os
import resource
import sys
import time

CONFIG = json.loads(sys.argv[2])
if CONFIG.get("omp_wait_policy"):
    os.environ["OMP_WAIT_POLICY"] = CONFIG["omp_wait_policy"]  # read when torch loads its OpenMP

import torch  # noqa: E402


def main(path: str, config: dict, seconds: float, steps: int, limit_bytes: int) -> float:
    torch.manual_seed(0)
    if limit_bytes:
        torch.ones(1 << 20).mul_(2).sum()  # OpenMP aborts if its threads find no memory for their stacks
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    if config.get("num_threads"):
        torch.set_num_threads(config["num_threads"])
    spec = importlib.util.spec_from_file_location("target", path)
    target = importlib.util.module_from_spec(spec)
    sys.modules["target"] = target
    spec.loader.exec_module(target)
    if hasattr(target, "setup"):
        target.setup()
    model = target.model().train()
    if config.get("channels_last"):
        model = model.to(memory_format=torch.channels_last)
    optimizer = target.optimizer(model.parameters())
    workers, dataset = config.get("num_workers", 0), target.dataset()
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=min(config["batch_size"], len(dataset)),  # more than there is would be no batch at all
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        collate_fn=getattr(target, "collate", None),
    )
    dtype = getattr(torch, config["amp_dtype"]) if config.get("amp_dtype") else None
    scaler = torch.amp.GradScaler("cpu", enabled=dtype is torch.float16)
    count = config.get("gradient_accumulation_steps", 1)
    began, measured_from, samples, micro_batches, measured_steps = time.perf_counter(), None, 0, 0, 0
    while True:
        for inputs, labels in loader:
            if config.get("channels_last") and inputs.dim() == 4:
                inputs = inputs.contiguous(memory_format=torch.channels_last)
            with torch.autocast("cpu", dtype=dtype) if dtype else contextlib.nullcontext():
                loss = target.loss(model, (inputs, labels)) / count
            scaler.scale(loss).backward()
            micro_batches += 1
            samples += len(labels)
            if micro_batches % count:
                continue
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            measured_steps += 1
            now = time.perf_counter()
            if measured_from is None and now - began > seconds / 10:
                measured_from, samples, measured_steps = now, 0, 0
            elif measured_from is not None and now - measured_from > seconds and measured_steps >= steps:
                return samples / (now - measured_from)


if __name__ == "__main__":
    steps, limit_bytes = (int(word) for word in (*sys.argv[4:], *("1", "0")[len(sys.argv) - 4 :]))
    print(main(sys.argv[1], CONFIG, float(sys.argv[3]), steps, limit_bytes), flush=True)
    os._exit(0)  # without waiting for workers that are in the middle of a sample
