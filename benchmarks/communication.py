"""What ranks spend on their exchange of gradients, and whether two micro-steps predict every accumulation from it.

    python -m benchmarks.communication [--ranks 2] [--device cpu] [--models conv,wide] [--rounds 7] [--json FILE]

Ranks train in this project's own loop. In every round all of a model's strategies take turns: pairs of micro-steps
without an exchange (n) and with one (s), then optimizer steps of k = 1, 2, 4 and 8 micro-batches, whose time
T(k) = (k - 1) n + s + o is predicted from the pairs and the optimizer's update (o). `ratio` is what was measured over
that. Efficiency is the rate of all ranks over as many times that of one rank that trains the same micro-batch alone,
while the others wait. Times are the shortest of all rounds, of rank 0: other work on the machine only adds to them.
With several GPUs: not run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from autotune.core.communication import Communication
from autotune.core.records import Config
from autotune.knobs import defaults, knob, plan_of
from autotune.targets import resolve
from autotune.targets.base import Order, Step, Watch
from autotune.targets.loop import Training
from autotune.targets.ranks import world

TARGETS = Path(__file__).parent / "targets" / "ranks"
BATCHES = {"conv": 4, "wide": 16}
STRATEGIES = (None, "zero2", "fsdp")
MICRO_BATCHES = (1, 2, 4, 8)
PAIRS, STEPS = 4, 3  # in each round, after one that does not count


class _Timed(Watch):
    """A watch that times optimizer steps and their updates, or pairs of micro-steps, and drops the first."""

    def __init__(self, device: str, *, pairs: int = 0, steps: int = 0) -> None:
        self._device, self._pairs, self._left = device, pairs, steps + 1
        self._last = self._began = 0.0
        self.steps: list[float] = []
        self.updates: list[float] = []
        self.micro_steps: list[float] = []

    def update(self) -> None:
        now = self._now()
        self.updates.append(now - self._began)
        self._began = now

    def step(self, step: Step) -> Order:
        self._left -= 1
        self.steps.append(self._lap())
        if self._pairs:
            return Order.EXCHANGE
        return Order.CONTINUE if self._left else Order.STOP

    def micro_step(self, *, exchanges: bool) -> Order:
        self.micro_steps.append(self._lap())
        return Order.STOP if exchanges and len(self.micro_steps) > 2 * self._pairs else Order.EXCHANGE

    def _lap(self) -> float:
        now = self._now()
        seconds, self._last = now - self._last, now
        return seconds

    def _now(self) -> float:
        if self._device != "cpu":
            torch.accelerator.synchronize(self._device)
        return time.perf_counter()


def opened(model: str, device: str, strategy: Any, micro_batches: int) -> Training:
    """Return a training of a model."""
    values = {**defaults(), knob("strategy").name: strategy, "batch_size": BATCHES[model]}
    values["gradient_accumulation_steps"] = micro_batches
    target, plan = resolve(str(TARGETS / f"{model}.py")), plan_of(values, device)
    session = target.open(Config(values=values), plan, lambda _: None)
    assert isinstance(session, Training)
    return session


def step_seconds(training: Training, device: str) -> tuple[float, float]:
    """Return the shortest seconds of an optimizer step, and of its update."""
    watch = _Timed(device, steps=STEPS)
    training.train(watch)
    return min(watch.steps[1:]), min(watch.updates[3::2])


def micro_step_seconds(training: Training, device: str) -> tuple[float, float]:
    """Return the shortest seconds of a micro-step without an exchange and with one."""
    watch = _Timed(device, pairs=PAIRS)
    training.train(watch)
    return min(watch.micro_steps[2::2]), min(watch.micro_steps[3::2])


@contextmanager
def _alone() -> Iterator[None]:
    """Be no rank meanwhile."""
    folder = os.environ.pop(world.RANKS_FOLDER_VARIABLE)
    try:
        yield
    finally:
        os.environ[world.RANKS_FOLDER_VARIABLE] = folder


def measured(model: str, device: str, rounds: int) -> list[dict[str, Any]]:
    """Return one row for each strategy; every rank has to call it."""
    trainings = {(s, k): opened(model, device, s, k) for s in STRATEGIES for k in MICRO_BATCHES}
    with _alone():
        single = opened(model, device, None, 1)
    found: dict[Any, list[dict[str, Any]]] = {strategy: [] for strategy in STRATEGIES}
    for _ in range(rounds):
        alone = step_seconds(single, device)[0] if world.world().rank == 0 else 0.0
        world.agreed(0)  # the others have waited
        for strategy in STRATEGIES:
            without, exchanging = micro_step_seconds(trainings[strategy, 1], device)
            steps = {k: step_seconds(trainings[strategy, k], device) for k in MICRO_BATCHES}
            times = {"without": without, "with": exchanging, "update": steps[1][1], "alone": alone}
            found[strategy].append({**times, **{str(k): seconds for k, (seconds, _) in steps.items()}})
    return [{"model": model, "strategy": strategy or "ddp", "rounds": each} for strategy, each in found.items()]


def rank(folder: Path, device: str, models: Sequence[str], rounds: int) -> None:
    """Be one of the ranks; the first leaves what it measured."""
    own = world.world()
    device = device if device == "cpu" else f"{device}:{own.rank}"
    torch.set_num_threads(1)
    world.join(device)
    rows = [row for model in models for row in measured(model, device, rounds)]
    if own.rank == 0:
        (folder / "rows.json").write_text(json.dumps(rows))
    world.agreed(0)
    sys.stdout.flush()
    os._exit(0)  # nobody waits for those that take their groups down


def rows_of(ranks: int, words: Sequence[str]) -> list[dict[str, Any]]:
    """Start the ranks and return what they measured."""
    with tempfile.TemporaryDirectory() as folder:
        common = {**os.environ, world.RANKS_FOLDER_VARIABLE: folder, "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "benchmarks.communication", "--folder", folder, *words]
        processes = [subprocess.Popen(command, env={**common, "RANK": str(number)}) for number in range(ranks)]
        try:
            statuses = [process.wait() for process in processes]
        finally:
            for process in processes:
                process.kill()
        if any(statuses):
            raise SystemExit(f"ranks ended with {statuses}")
        rows: list[dict[str, Any]] = json.loads((Path(folder) / "rows.json").read_text())
        return rows


def table(rows: Sequence[dict[str, Any]], ranks: int) -> str:
    """Return the rows as Markdown."""
    ratios = " | ".join(f"T({k}) ratio" for k in MICRO_BATCHES)
    lines = [
        f"| model | strategy | n, ms | exposed | {ratios} | efficiency of {ranks} ranks |",
        "| --- | --- | --- | --- |" + " --- |" * (len(MICRO_BATCHES) + 1),
    ]
    for row in rows:
        best = {name: min(each[name] for each in row["rounds"]) for name in row["rounds"][0]}
        both = Communication(without_seconds=(best["without"],), with_seconds=(best["with"],))
        shown = [f"{best[str(k)] / both.step_seconds(k, best['update']):.2f}" for k in MICRO_BATCHES]
        start = f"| {row['model']} | {row['strategy']} | {1e3 * best['without']:.1f} | {both.exposed_share:.0%} | "
        lines.append(f"{start}{' | '.join(shown)} | {best['alone'] / best['1']:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", default="conv,wide")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        rank(options.folder, options.device, options.models.split(","), options.rounds)
        return
    words = ("--device", options.device, "--models", options.models, "--rounds", str(options.rounds))
    rows = rows_of(options.ranks, words)
    print(f"{options.ranks} ranks, {options.device}, {platform.machine()}, torch {torch.__version__}\n")
    print(table(rows, options.ranks))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
