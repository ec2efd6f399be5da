"""One peer's search for a configuration, in a process of its own under the task's memory limit; started by `peers.py`.

    python -m benchmarks.peer_searches lightning-power denoiser 20 cpu

prints one line of JSON: the configuration picked, tries, how many ran out of memory, and whether the pick ever ran. A
peer that is not installed says so; one that dies says of what, and what it had tried by then. `expert` is nobody's
tool, but what somebody who knows writes by hand.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, default_collate

from autotune.child.device import native_dtypes
from autotune.child.memory import memory_share
from autotune.failures.classify import classify, describe
from autotune.machine.host import usable_cores
from autotune.targets.batches import move
from autotune.units import parse_bytes
from benchmarks.catalogue import CATALOGUE, SMALL, catalogue
from benchmarks.plain_loop import limit_memory
from benchmarks.surfaces.tasks import Task, chosen

STEPS = 3  # of one try: Lightning's default, and what its documentation says is enough


class Sizes:
    """Which micro-batches a peer tried, and which of them came through an optimizer step."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: set[int] = set()

    def begin(self, size: int) -> None:
        """A try of that size."""
        if size not in self.begun:
            self.begun.append(size)

    def told(self, pick: int | None) -> dict[str, Any]:
        """As the parent reads it."""
        config = None if pick is None else {"batch_size": pick}
        lost = sum(size not in self.ended for size in self.begun)
        return {"config": config, "tries": len(self.begun), "out_of_memory": lost, "ran": pick in self.ended}


def steps(target: Any, batch_size: int, device: str, amp_dtype: str | None = None, layout: Any = None) -> None:
    """Train a new model for `STEPS` steps, as the documentation of each peer shows it."""
    model = target.model().to(device).train()
    if layout is not None:
        model = model.to(memory_format=layout)
    optimizer = target.optimizer(model.parameters())
    loader = DataLoader(target.dataset(), batch_size=batch_size, shuffle=True)
    for batch in itertools.islice(_endless(loader), STEPS):
        with _autocast(device, amp_dtype):
            loss = target.loss(model, move(batch, lambda tensor: tensor.to(device), device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if device != "cpu":
        torch.accelerator.synchronize()  # what was only issued has not run yet


def lightning(target: Any, task: Task, sizes: Sizes, mode: str) -> int | None:
    """`Tuner.scale_batch_size` with its defaults, on a module whose batch is the usual one."""
    try:
        import lightning.pytorch as pl
        from lightning.pytorch.tuner import Tuner
    except ImportError:  # the same under its older name
        import pytorch_lightning as pl
        from pytorch_lightning.tuner import Tuner

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.batch_size = task.usual
            self.model = target.model()

        def training_step(self, batch: Any, index: int) -> Any:
            sizes.begin(_samples(batch))
            return target.loss(self.model, batch)

        def on_train_batch_end(self, outputs: Any, batch: Any, index: int) -> None:
            sizes.ended.add(_samples(batch))

        def configure_optimizers(self) -> Any:
            return target.optimizer(self.parameters())

        def train_dataloader(self) -> Any:
            return DataLoader(target.dataset(), batch_size=self.batch_size, shuffle=True)

    with tempfile.TemporaryDirectory() as place:
        trainer = pl.Trainer(
            accelerator="cpu" if task.device == "cpu" else "gpu", devices=1, max_epochs=1, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=place,
        )  # fmt: skip
        return Tuner(trainer).scale_batch_size(Module(), mode=mode)


def accelerate(target: Any, task: Task, sizes: Sizes) -> int:
    """`find_executable_batch_size` from its default start of 128 down."""
    from accelerate.utils import find_executable_batch_size

    @find_executable_batch_size
    def train(batch_size: int) -> int:
        sizes.begin(batch_size)
        steps(target, batch_size, task.device)
        sizes.ended.add(batch_size)
        return batch_size

    return int(train())


def expert(target: Any, task: Task, sizes: Sizes) -> dict[str, Any]:
    """bfloat16, channels_last for convolutions, TF32, a worker per core, and the micro-batch doubled while it fits."""
    amp_dtype = "bfloat16" if "bfloat16" in native_dtypes(task.device) else None
    convolves = any(isinstance(module, torch.nn.Conv2d) for module in target.model().modules())
    layout = torch.channels_last if convolves else None
    torch.set_float32_matmul_precision("high")
    size, fits = task.usual, True
    while fits and size <= task.global_batch:
        sizes.begin(size)
        fits = _fits(lambda size=size: steps(target, size, task.device, amp_dtype, layout), task.device)
        if fits:
            sizes.ended.add(size)
            size *= 2
    found = sizes.told(max(sizes.ended, default=None))
    if found["config"]:
        extra = {"amp_dtype": amp_dtype, "channels_last": convolves, "num_workers": usable_cores(), "tf32": True}
        found["config"] |= extra
    return found


def _fits(train: Any, device: str) -> bool:
    """Whether it ends. Raises what is no lack of memory."""
    try:
        train()
    except (RuntimeError, MemoryError) as error:
        if not classify(describe(error), memory_share=memory_share(device))[0].out_of_memory:
            raise
        fits = False
    else:
        fits = True
    gc.collect()
    torch.cuda.empty_cache()  # does nothing without CUDA
    return fits


def ludwig(target: Any, task: Task, sizes: Sizes) -> int:
    """Ludwig's tuner of the batch size on its own: steps on one sample many times over, as Ludwig makes them up."""
    from ludwig.utils.batch_size_tuner import BatchSizeEvaluator

    model, dataset = target.model().train(), target.dataset()
    optimizer, sample = target.optimizer(model.parameters()), dataset[0]

    class Evaluator(BatchSizeEvaluator):
        def reset(self) -> None:
            optimizer.zero_grad()

        def step(self, batch_size: int, global_max_sequence_length: int | None = None) -> None:
            sizes.begin(batch_size)
            target.loss(model, default_collate([sample] * batch_size)).backward()
            optimizer.step()
            sizes.ended.add(batch_size)

    return int(Evaluator().select_best_batch_size(len(dataset), max_batch_size=len(dataset)))


def optuna_by_hand(target: Any, task: Task, sampler: str, seconds: float) -> dict[str, Any]:
    """What one writes in an afternoon: a study in this process, two steps to warm up, a second timed."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers = {"tpe": optuna.samplers.TPESampler, "gp": optuna.samplers.GPSampler}
    study = optuna.create_study(direction="maximize", sampler=samplers[sampler](seed=0))
    exponents = [e for e in range(task.global_batch.bit_length()) if task.global_batch % 2**e == 0]
    has_images = any(isinstance(module, torch.nn.Conv2d) for module in target.model().modules())

    def objective(trial: optuna.Trial) -> float:
        batch_size = 2 ** trial.suggest_int("exponent", 0, exponents[-1])
        config = {
            "batch_size": batch_size,
            "gradient_accumulation_steps": task.global_batch // batch_size,
            "amp_dtype": trial.suggest_categorical("amp_dtype", [None, "bfloat16"]),
            "channels_last": has_images and trial.suggest_categorical("channels_last", [False, True]),
            "num_workers": trial.suggest_int("num_workers", 0, usable_cores()),
            "num_threads": trial.suggest_int("num_threads", 1, usable_cores()),
        }
        trial.set_user_attr("config", config)
        try:
            return timed(target, config)
        except (RuntimeError, MemoryError):  # also oneDNN's "could not create a primitive": that, too, was memory
            raise optuna.TrialPruned from None

    study.optimize(objective, timeout=seconds, gc_after_trial=True)
    pruned = sum(trial.state is optuna.trial.TrialState.PRUNED for trial in study.trials)
    config = study.best_trial.user_attrs["config"]
    return {"config": config, "tries": len(study.trials), "out_of_memory": pruned, "ran": True}


def timed(target: Any, config: dict[str, Any]) -> float:
    """Samples/s over a second and at least three steps, after two; the whole step, loading included."""
    torch.set_num_threads(config["num_threads"])
    model = target.model().train()
    layout = torch.channels_last if config["channels_last"] else torch.contiguous_format
    model = model.to(memory_format=layout)
    optimizer = target.optimizer(model.parameters())
    loader = DataLoader(
        target.dataset(), batch_size=config["batch_size"], shuffle=True, drop_last=True,
        num_workers=config["num_workers"],
    )  # fmt: skip
    batches = _endless(loader)
    amp = torch.bfloat16 if config["amp_dtype"] else None
    samples, done, began = 0, 0, time.perf_counter()
    while True:
        for _ in range(config["gradient_accumulation_steps"]):
            images, labels = next(batches)
            images = images.contiguous(memory_format=layout) if images.dim() == 4 else images
            with torch.autocast("cpu", dtype=amp) if amp else contextlib.nullcontext():
                loss = target.loss(model, (images, labels)) / config["gradient_accumulation_steps"]
            loss.backward()
            samples += len(images)
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        if done == 2:
            samples, began = 0, time.perf_counter()
        elif done >= 5 and time.perf_counter() - began > 1:
            return samples / (time.perf_counter() - began)


def _endless(loader: DataLoader) -> Iterator[Any]:
    while True:
        yield from loader


def _samples(batch: Any) -> int:
    return len(next(iter(batch.values())) if isinstance(batch, dict) else batch[0])


def _autocast(device: str, amp_dtype: str | None) -> contextlib.AbstractContextManager[Any]:
    kind = device.partition(":")[0]
    return torch.autocast(kind, dtype=getattr(torch, amp_dtype)) if amp_dtype else contextlib.nullcontext()


def picked(peer: str, task: Task, seconds: float) -> dict[str, Any]:
    """What that peer comes to; `died` where it does not. Raises `ImportError` where it is not installed."""
    place = Path(task.target)
    sys.path.insert(0, str(place.parent))  # what the file imports lies beside it
    target, sizes = importlib.import_module(place.stem), Sizes()
    name, _, mode = peer.partition("-")
    try:
        if name == "optuna":
            return optuna_by_hand(target, task, mode, seconds)
        if name == "lightning":
            return sizes.told(lightning(target, task, sizes, mode))
        if name == "expert":
            return expert(target, task, sizes)
        return sizes.told({"accelerate": accelerate, "ludwig": ludwig}[name](target, task, sizes))
    except ImportError:
        raise
    except Exception as error:  # whatever a peer dies of is its result
        return {**sizes.told(None), "died": f"{type(error).__name__}: {error}"[:160]}


def main() -> None:
    peer, name, seconds, device = sys.argv[1:]
    of_gpu = name in [task.name for task in CATALOGUE]
    (task,) = catalogue(name, device=device, small=SMALL in os.environ) if of_gpu else chosen(name)
    if task.memory_limit is not None:
        limit_memory(parse_bytes(task.memory_limit), device)
    try:
        found = picked(peer, task, float(seconds))
    except ImportError as error:
        found = {"missing": f"{type(error).__name__}: {error}"[:160]}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
