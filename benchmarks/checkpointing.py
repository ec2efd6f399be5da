"""What each policy of activation checkpointing costs and saves: peak memory and time of a step, measured and predicted.

    python -m benchmarks.checkpointing [--models gpt,gpt2,...] [--dtypes float32,bfloat16] [--rounds 3] [--steps 5]

Peaks are those of `benchmarks/memory.py`: two real steps under torch's profiler, next to what one shape run of all
policies predicts. Time is processor time with one thread, which other work on the machine moves little: the median step
of rounds in which all policies of a model take turns, against no checkpointing in the same round.
GPT-2 needs the transformers library. On a GPU: not run.
"""

from __future__ import annotations

import argparse
import gc
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from autotune.core.records import Config, Value
from autotune.knobs import defaults, knob, plan_of
from autotune.knobs.activation_checkpointing import CHOICES
from autotune.launch.subprocess import SubprocessLauncher
from autotune.memory.records import ShapeRun, ShapeRunRequest
from autotune.targets import resolve
from autotune.targets.base import Order, Step, Watch
from benchmarks.memory import measure

MODELS = Path(__file__).parent / "targets" / "memory"
BATCHES = {"gpt": 8, "gpt2": 4, "resnet": 16}
DTYPES: dict[str, Value] = {"float32": None, "bfloat16": "bfloat16"}
POLICY = knob("checkpointing").name


class _Steps(Watch):
    """Steps that are timed, one by one, after the first two."""

    def __init__(self, count: int) -> None:
        self._left, self._before = count + 2, 0.0
        self.seconds: list[float] = []

    def step(self, step: Step) -> Order:
        now, self._left = time.process_time(), self._left - 1
        self.seconds.append(now - self._before)
        self._before = now
        return Order.CONTINUE if self._left else Order.STOP


def step_seconds(target: str, arm: dict[str, Value], batch: int, steps: int) -> float:
    """Median seconds of an optimizer step."""
    values = {**defaults(), **arm, "batch_size": batch}
    watch = _Steps(steps)
    resolve(target).open(Config(values=values), plan_of(values, "cpu"), lambda name: None).train(watch)
    return statistics.median(watch.seconds[2:])


def peak(target: str, arm: dict[str, Value], batch: int) -> int | str:
    """Bytes at the peak of two real steps, or the error."""
    gc.collect()
    try:
        return measure(target, arm, batch, 2)
    except Exception as error:  # whatever torch or the model say
        return f"{type(error).__name__}: {error}".splitlines()[0]


def predicted(target: str, arms: Sequence[dict[str, Value]], batch: int) -> ShapeRun:
    """One shape run of all policies."""
    request = ShapeRunRequest(
        target=target, config=Config(values=defaults()), arms=tuple(arms), batches=(batch // 4, batch), device="cpu"
    )
    with tempfile.TemporaryDirectory() as folder:
        return SubprocessLauncher().run(request, Path(folder))


def table(model: str, dtype: str, rounds: int, steps: int) -> None:
    target, batch = str(MODELS / f"{model}.py"), BATCHES[model]
    arms: list[dict[str, Value]] = [{"amp_dtype": DTYPES[dtype], POLICY: one} for one in CHOICES]
    peaks = [peak(target, arm, batch) for arm in arms]
    found = predicted(target, arms, batch)
    times = [[step_seconds(target, arm, batch, steps) for arm in arms] for _ in range(rounds)]
    for number, (arm, real) in enumerate(zip(arms, peaks, strict=True)):
        start = f"| {model} × {batch} | {dtype} | {knob(POLICY).show(arm[POLICY])}"
        if isinstance(real, str) or isinstance(peaks[0], str):
            print(f"{start} | not run: {real} | | | |", flush=True)
            continue
        foretold = found.peak_bytes({**arm, "batch_size": batch})
        error = "not predicted" if foretold is None else f"{foretold / real - 1:+.1%}"
        longer = sorted(row[number] / row[0] for row in times)
        spread = f"{statistics.median(longer):.2f} ({longer[0]:.2f} to {longer[-1]:.2f})"
        print(f"{start} | {real / 2**20:.0f} MiB | {real / peaks[0]:.2f} | {spread} | {error} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(BATCHES))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="timed ones, in each round")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__} on {platform.machine()}, {platform.system()}; CPU, one thread\n")
    print("| model | dtype | policy | peak | of none | time of a step, of none | shape run |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for model in arguments.models.split(","):
        for dtype in arguments.dtypes.split(","):
            table(model, dtype, arguments.rounds, arguments.steps)


if __name__ == "__main__":
    main()
