"""Predicted against measured peak memory: what the shape run predicts, and what the allocator then really gave.

    python benchmarks/memory.py [--models mlp,cnn,...] [--batches 2] [--steps 2]

For every model one shape run (as `autotune check --memory` asks for it) in float32 and bfloat16, and then real training
at every batch, each in a process of its own: two optimizer steps under torch's profiler, whose memory events are the
CPU allocator's own count, kernels' temporaries included. The frontier is the batch at which the shape run's law reaches
what the largest batch really took, against that batch; errors below 0 are optimistic for peaks, too careful for
frontiers above 0. What a process holds besides (4 to 10 MiB and the interpreter, docs/notes/memory.md 4) is not the
subject here. GPT-2 needs the transformers library. On a GPU: not run.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from autotune.core.records import Config, Value
from autotune.knobs import KNOBS, defaults
from autotune.knobs.base import Plan
from autotune.launch.subprocess import SubprocessLauncher
from autotune.memory.model import START_MARGIN, Arm
from autotune.memory.records import ShapeRun, ShapeRunRequest
from autotune.targets import resolve
from autotune.targets.base import Order, Step

MODELS = Path(__file__).parent / "targets" / "memory"
BATCHES = {  # three of a climb each; sizes that a laptop takes
    "mlp": (256, 1024, 4096), "cnn": (8, 32, 96), "resnet": (8, 24, 64), "lstm": (8, 32, 128),
    "gpt": (4, 12, 32), "gpt_checkpointed": (4, 12, 32), "resnet_checkpointed": (8, 24, 64), "gpt2": (2, 6, 16),
}  # fmt: skip
CHECKPOINTED = "_checkpointed"  # the same model with the knob on
DTYPES = (None, "bfloat16")
GOAL = 0.05  # of the frontier


@dataclass(frozen=True)
class Row:
    """One model in one dtype."""

    errors: tuple[float, ...]  # predicted over measured, less 1; one per batch
    measured: tuple[int, ...]  # bytes
    frontier_error: float
    real_seconds: float


class _Steps:
    """A watch that lets `left` optimizer steps happen."""

    steps_at_once = 1

    def __init__(self, left: int) -> None:
        self._left = left

    def first_batch(self, seconds: float) -> None: ...

    def epoch(self) -> None: ...

    def step(self, step: Step) -> Order:
        self._left -= 1
        return Order.CONTINUE if self._left else Order.STOP

    def micro_batch(self) -> None: ...

    def update(self) -> None: ...

    def loaded(self, samples: int) -> Order:
        return Order.STOP


def measure(target: str, arm: dict[str, Value], batch: int, steps: int) -> int:
    """Peak bytes that the CPU allocator gave for `steps` optimizer steps, the model's own included."""
    values = {**defaults(), **arm, "batch_size": batch}
    plan = Plan(device="cpu")
    for knob in KNOBS:
        knob.apply(values[knob.name], plan)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        session = resolve(target).open(Config(values=values), plan, lambda name: None)
        session.train(_Steps(steps))
    held = peak = 0
    for event in sorted(profiler.profiler.kineto_results.events(), key=lambda one: one.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def predict(target: str, batches: Sequence[int], *, checkpointed: bool) -> tuple[ShapeRun, float]:
    """One shape run in all dtypes, and its seconds, process and all."""
    arms: tuple[dict[str, Value], ...] = tuple(
        {"amp_dtype": dtype, "activation_checkpointing": checkpointed} for dtype in DTYPES
    )
    config = Config(values=defaults())
    request = ShapeRunRequest(target=target, config=config, arms=arms, batches=tuple(batches), device="cpu")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        return SubprocessLauncher().run(request, Path(folder)), time.monotonic() - began


def compare(target: str, arm: Arm, batches: Sequence[int], steps: int) -> Row | str:
    """Real runs of one model in one dtype against its shape run; a sentence where one of them could not be made."""
    if not arm.points:
        return arm.why
    began, measured = time.monotonic(), []
    for batch in batches:
        line = [sys.executable, __file__, "--measure", target, json.dumps(arm.values), str(batch), str(steps)]
        ended = subprocess.run(line, capture_output=True, text=True)
        if ended.returncode:
            return ended.stderr.strip().splitlines()[-1]
        measured.append(int(json.loads(ended.stdout.splitlines()[-1])))
    return Row(
        errors=tuple((arm.peak_bytes(batch) or 0.0) / real - 1 for batch, real in zip(batches, measured, strict=True)),
        measured=tuple(measured),
        frontier_error=_frontier_error(arm, batches[-1], measured[-1]),
        real_seconds=time.monotonic() - began,
    )


def _frontier_error(arm: Arm, batch: int, measured: int) -> float:
    """By which share the shape run is too careful (below 0: too bold) about the batch that needs `measured` bytes."""
    frontier = arm.frontier(measured)
    return 1.0 if not frontier else 1 - frontier / batch


def table(models: Sequence[str], count: int, steps: int) -> None:
    print(f"torch {torch.__version__} on {platform.machine()}, {platform.system()}; CPU, {steps} optimizer steps\n")
    print(
        "| model | dtype | batches | measured MiB | error of the prediction | of the frontier | real runs | shape run |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    rows = []
    for model in models:
        target, batches = str(MODELS / f"{model.removesuffix(CHECKPOINTED)}.py"), BATCHES[model][-count:]
        found, seconds = predict(target, BATCHES[model], checkpointed=model.endswith(CHECKPOINTED))
        if not found.arms:
            why = found.failure.message.splitlines()[0] if found.failure else found.outcome.value
            print(f"| {model} | | {_joined(batches)} | not run: {why} | | | | |", flush=True)
        for arm in found.arms:
            row = compare(target, arm, batches, steps)
            start = f"| {model} | {arm.values['amp_dtype'] or 'float32'} | {_joined(batches)}"
            if isinstance(row, str):
                print(f"{start} | not run: {row} | | | | |", flush=True)
                continue
            rows.append(row)
            sizes, errors = (f"{real / 2**20:.0f}" for real in row.measured), (f"{one:+.1%}" for one in row.errors)
            took = f"{row.real_seconds:.0f} s | {seconds / len(found.arms):.0f} s"
            print(f"{start} | {_joined(sizes)} | {_joined(errors)} | {row.frontier_error:+.1%} | {took} |", flush=True)
    if rows:
        errors_of_all = [error for row in rows for error in row.errors]
        far = max(abs(row.frontier_error) for row in rows)
        print(
            f"\nFrontier off by at most {far:.1%} (goal {GOAL:.0%}). Most optimistic peak {min(errors_of_all):+.1%} ",
            end="",
        )
        print(f"(margin {START_MARGIN:.0%}), most pessimistic {max(errors_of_all):+.1%}.")


def _joined(parts: Iterable[object]) -> str:
    return " / ".join(map(str, parts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(BATCHES))
    parser.add_argument("--batches", type=int, default=2, help="of each model, the largest ones")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--measure", nargs=4, metavar=("TARGET", "ARM", "BATCH", "STEPS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        target, arm, batch, steps = arguments.measure
        print(json.dumps(measure(target, json.loads(arm), int(batch), int(steps))))
        return
    table(arguments.models.split(","), arguments.batches, arguments.steps)


if __name__ == "__main__":
    main()
