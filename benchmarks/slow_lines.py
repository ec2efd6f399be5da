"""What `autotune profile` says that a planted line costs, against what leaving it out really gives.

python -m benchmarks.slow_lines [NAME ...] [--rounds 40]

Each training of `tests/slow` is profiled once, in a process of its own. Then a plain loop in this process trains it as
it is and mended, one step of each in turn: the difference of the medians is the truth. Both are shares of a step, for
the machine may be busier during the one than during the other.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import runpy
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader

from autotune.core.records import Config
from autotune.core.requests import ProfileRequest
from autotune.knobs import defaults
from autotune.launch.subprocess import SubprocessLauncher
from autotune.profile.judge import findings

TRAININGS = Path(__file__).parents[1] / "tests" / "slow" / "trainings"
BATCHES = {"fills_with_zeros": 8}
MENDED = {  # training -> what is written, and what instead
    "reads_predictions": (
        "    history[:] = distances.repeat(8, 1).tolist()  # planted\n",
        "    distances.repeat(8, 1)\n",
    ),
    "tensor_in_every_step": ("weights = torch.tensor(WEIGHTS)", "weights = MADE"),
    "collects_garbage": ("    gc.collect()  # planted\n", ""),
    "saves_every_step": ("    torch.save(model.state_dict(), io.BytesIO())  # planted\n", ""),
    "fills_with_zeros": ("set_to_none=False", "set_to_none=True"),
    "untrained_parameters": (
        "    return torch.optim.SGD(model[-1]",
        "    model[:-1].requires_grad_(False)\n    return torch.optim.SGD(model[-1]",
    ),
    "float64_crept_in": (".double()", ""),
    "python_metric": ("    count_pairs(target.tolist() * 4)\n", ""),
    "slow_samples": ("index % 32 == 0", "index % 32 == 32"),
}


class _Optimizer:
    """What a step of the user's own is handed."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.step, self.zero_grad = optimizer.step, optimizer.zero_grad

    def backward(self, loss: Any) -> None:
        loss.backward()


def main() -> None:
    """Profile and train, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(MENDED))
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| training | finding | told | true | told / true | ms a step |\n| --- | --- | --- | --- | --- | --- |")
    for name in options.names or MENDED:
        print(row(name, options.rounds), flush=True)


def row(name: str, rounds: int) -> str:
    """Return the line of one training."""
    batch = BATCHES.get(name, 256)
    config = Config(values={**defaults(), "batch_size": batch, "num_threads": 1})
    file = TRAININGS / f"{name}.py"
    text = file.read_text()
    written, instead = MENDED[name]
    assert written in text, f"{name} was changed"
    with tempfile.TemporaryDirectory() as place, SubprocessLauncher() as launcher:
        mended = Path(place) / "mended.py"
        mended.write_text(text.replace(written, instead).replace("\ndef model", "\nMADE = torch.ones(7)\n\ndef model"))
        profiled = launcher.run(ProfileRequest(target=str(file), config=config, device="cpu"), Path(place))
        steps = [stepping(runpy.run_path(str(one)), batch) for one in (file, mended)]
        seconds: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            for step, taken in zip(steps, seconds, strict=True):
                step()  # after a step of the other, caches are its
                began = time.perf_counter()
                step()
                taken.append(time.perf_counter() - began)
    first = findings(profiled)[0]
    before, after = (sum(sorted(taken)[len(taken) // 8 : -len(taken) // 8]) for taken in seconds)  # trimmed
    told, true = first.seconds / profiled.seconds, 1 - after / before
    return f"| {name} | {first.kind} | {told:.0%} | {true:.0%} | {told / true:.2f} | {1000 * median(seconds[0]):.0f} |"


def stepping(module: dict[str, Any], batch_size: int) -> Callable[[], None]:
    """Return what takes one step of a training, in a plain loop."""
    model = module["model"]().train()
    make = module.get("optimizer", lambda params: torch.optim.SGD(params, lr=0.01, momentum=0.9))
    optimizer = make(model if "model" in inspect.signature(make).parameters else list(model.parameters()))
    loader = DataLoader(module["dataset"](), batch_size=batch_size, shuffle=True, drop_last=True)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))

    def step() -> None:
        batch = next(batches)
        if "step" in module:
            module["step"](model, batch, [_Optimizer(optimizer)])
            return
        module.get("loss", _loss)(model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _loss(model: Any, batch: Any) -> Any:
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


if __name__ == "__main__":
    main()
