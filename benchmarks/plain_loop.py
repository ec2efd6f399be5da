"""A training loop as anybody would write it, timed with one clock at both ends; knows nothing of autotune.

    python benchmarks/plain_loop.py examples/digits_cnn.py '{"batch_size": 64}' 20 1000 [LIMIT_BYTES [DEVICE]]

prints samples/s over at least that many seconds and optimizer steps, after a tenth of the seconds as warm-up. The JSON
is a recommended configuration; what it leaves out is PyTorch's default; `"tf32": true` is understood besides, and
`"gc_freeze": true`, which keeps Python's collector from objects that were there before the first step. The
memory limit (0: none) is enforced for this process and each loader worker by the kernel, on a GPU by torch's allocator.
On a GPU batches are pinned and copied without waiting, and the device is waited for at both ends of the window only.
"""

import contextlib
import gc
import importlib.util
import itertools
import json
import os
import resource
import sys
import time
from pathlib import Path

MALLOCS = {
    "glibc": {
        "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=4611686018427387904"
    },
    "jemalloc": {
        "LD_PRELOAD": "libjemalloc.so.2",
        "MALLOC_CONF": "oversize_threshold:0,dirty_decay_ms:-1,muzzy_decay_ms:-1",
    },
    "tcmalloc": {"LD_PRELOAD": "libtcmalloc_minimal.so.4"},
}
if __name__ == "__main__":  # what must be in place before torch is imported; others import this file too
    CONFIG = json.loads(sys.argv[2])
    own = MALLOCS.get(CONFIG.get("malloc"), {})
    if not own.items() <= os.environ.items():  # read before Python begins
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **own})
    if CONFIG.get("omp_wait_policy"):
        os.environ["OMP_WAIT_POLICY"] = CONFIG["omp_wait_policy"]  # read when torch loads its OpenMP
    if CONFIG.get("allocator"):
        os.environ["PYTORCH_ALLOC_CONF"] = f"{CONFIG['allocator']}:True"

import torch  # noqa: E402

SDPA_SWITCHES = {
    "cudnn": torch.backends.cuda.enable_cudnn_sdp,
    "flash": torch.backends.cuda.enable_flash_sdp,
    "efficient": torch.backends.cuda.enable_mem_efficient_sdp,
    "math": torch.backends.cuda.enable_math_sdp,
}
FEWEST_BLOCKS = 2  # of one kind, in a list
LOADED_AHEAD = 2  # batches of each worker that wait when the first step ends: DataLoader's default prefetch_factor
STACK_BYTES = 512 * 2**20
LEAST_WARM_UP_STEPS = 5  # on a GPU, where the first ones load kernels and fill the allocator's cache


def main(path: str, config: dict, seconds: float, steps: int, limit_bytes: int, device: str) -> float:
    torch.manual_seed(0)
    if limit_bytes:
        limit_memory(limit_bytes, device)
    if config.get("num_threads"):
        torch.set_num_threads(config["num_threads"])
    if config.get("tf32"):
        torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = bool(config.get("cudnn_benchmark"))
    target = imported(path)
    if hasattr(target, "setup"):
        target.setup()
    model = target.model().to(device).train()
    if policy := config.get("activation_checkpointing"):
        if policy is not True:
            raise SystemExit(
                f"checkpointing {policy}: no line of torch does that, only whole models are checkpointed here"
            )
        model.gradient_checkpointing_enable({"use_reentrant": False})  # as Hugging Face models offer it
    if config.get("activation_memory_budget"):
        torch._functorch.config.activation_memory_budget = config["activation_memory_budget"]
    if config.get("channels_last"):
        model = model.to(memory_format=torch.channels_last)
    optimizer = target.optimizer(model.parameters())
    model = compiled(model, config.get("compile_mode"))
    if kernel := config.get("sdpa_backend"):
        for name, switch in SDPA_SWITCHES.items():
            switch(name == kernel)
    if way := config.get("fused_optimizer"):
        for group in optimizer.param_groups:
            group.update(foreach=way == "foreach", fused=way == "fused")
    loader = loader_of(target, config, device)
    kind = device.partition(":")[0]
    dtype = getattr(torch, config["amp_dtype"]) if config.get("amp_dtype") else None
    scaler = torch.amp.GradScaler(kind, enabled=dtype is torch.float16)
    count = config.get("gradient_accumulation_steps", 1)
    # A short window would count what waits as if it were just loaded.
    ahead = (config.get("prefetch_factor") or LOADED_AHEAD) * config.get("num_workers", 0)
    least = (1 if kind == "cpu" else LEAST_WARM_UP_STEPS) + -(-ahead // count)
    if config.get("gc_freeze"):
        gc.collect()
        gc.freeze()
    began, measured_from, samples, done = time.perf_counter(), None, 0, 0
    batches = (batch for _ in itertools.count() for batch in loader)
    for micro_batch, batch in enumerate(batches, start=1):
        samples += size_of(batch)
        batch = on_device(batch, device, bool(config.get("channels_last")))
        with torch.autocast(kind, dtype=dtype) if dtype else contextlib.nullcontext():
            loss = target.loss(model, batch)
            loss = loss / count if count > 1 else loss  # nobody who does not accumulate divides
        scaler.scale(loss).backward()
        if micro_batch % count:
            continue
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        done += 1
        now = time.perf_counter()
        if measured_from is None and now - began > seconds / 10 and done >= least:
            measured_from, samples, done = waited(device), 0, 0
        elif measured_from is not None and now - measured_from > seconds and done >= steps:
            return samples / (waited(device) - measured_from)
    raise AssertionError("the batches have no end")


def compiled(model, mode: str | None):
    """As torch's documentation shows it; "regional": every block of a list of blocks."""
    if mode == "regional":
        lists = [one for one in model.modules() if isinstance(one, (torch.nn.ModuleList, torch.nn.Sequential))]
        alike = [one for one in lists if len(one) >= FEWEST_BLOCKS and len({type(block) for block in one}) == 1]
        if not alike:
            raise SystemExit("the model has no list of blocks that are alike: nothing would be compiled")
        for block in (block for one in alike for block in one):
            block.compile()
        return model
    return torch.compile(model, mode=None if mode == "default" else mode) if mode else model


def limit_memory(limit_bytes: int, device: str) -> None:
    if device.startswith("cuda"):
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), torch.device(device).index)
        return
    torch.ones(1 << 20).mul_(2).sum()  # OpenMP aborts if its threads find no memory for their stacks
    # RLIMIT_DATA counts what is mapped and not touched; that and stacks to come are granted besides, as to a probe.
    ceiling = limit_bytes + 1024 * (kibibytes("VmData") - kibibytes("RssAnon")) + STACK_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (ceiling if hard == resource.RLIM_INFINITY else min(ceiling, hard), hard))


def kibibytes(name: str) -> int:
    """A line of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


def imported(path: str):
    sys.path.insert(0, str(Path(path).resolve().parent))  # what the file imports lies beside it
    spec = importlib.util.spec_from_file_location("target", path)
    target = importlib.util.module_from_spec(spec)
    sys.modules["target"] = target
    spec.loader.exec_module(target)
    return target


def loader_of(target, config: dict, device: str):
    if hasattr(target, "dataloader"):
        return target.dataloader(config["batch_size"])
    workers, dataset = config.get("num_workers", 0), target.dataset()
    return torch.utils.data.DataLoader(
        dataset,
        batch_size=min(config["batch_size"], len(dataset)),  # more than there is would be no batch at all
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0 and config.get("persistent_workers") is not False,
        prefetch_factor=config.get("prefetch_factor") if workers else None,
        pin_memory=device.startswith("cuda") and config.get("pin_memory") is not False,
        collate_fn=getattr(target, "collate", None),
    )


def size_of(batch) -> int:
    return len(next(iter(batch.values())) if isinstance(batch, dict) else batch[-1])


def on_device(batch, device: str, channels_last: bool):
    def moved(tensor):
        tensor = tensor.to(device, non_blocking=True)
        return tensor.contiguous(memory_format=torch.channels_last) if channels_last and tensor.dim() == 4 else tensor

    if isinstance(batch, dict):
        return {name: moved(tensor) for name, tensor in batch.items()}
    return [moved(tensor) for tensor in batch]


def waited(device: str) -> float:
    """The clock, once the device has done all that it was given."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter()


if __name__ == "__main__":
    steps, limit_bytes, device = (*sys.argv[4:], *("1", "0", "cpu")[len(sys.argv) - 4 :])
    print(main(sys.argv[1], CONFIG, float(sys.argv[3]), int(steps), int(limit_bytes), device), flush=True)
    os._exit(0)  # without waiting for workers that are in the middle of a sample
