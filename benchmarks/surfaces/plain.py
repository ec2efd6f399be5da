"""Configurations in turn in the plain training loop that knows nothing of autotune, under the task's memory limit."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.core.records import Value
from autotune.knobs import defaults
from autotune.units import parse_bytes
from benchmarks.surfaces.tasks import Task

LOOP = Path(__file__).parents[1] / "plain_loop.py"
MOST_SECONDS = 300.0  # of one loop: beyond it something hangs


@dataclass
class Trained:
    """What became of one configuration."""

    rates: list[float] = field(default_factory=list)  # samples/s, one per round
    died: str = ""  # of what; empty: it lived

    @property
    def rate(self) -> float | None:
        """Median over the rounds, samples/s; None if it died."""
        return statistics.median(self.rates) if self.rates and not self.died else None


def in_turn(
    task: Task, configs: Mapping[str, Mapping[str, Value]], seconds: float, rounds: int
) -> dict[str, Trained]:  # fmt: skip
    """Train each for that long, in rounds of which every other goes backwards, so that drift meets all alike.

    By name; who died is not trained again. Names with the same configuration share one training.
    """
    distinct = {json.dumps(values, sort_keys=True): values for values in configs.values()}
    trained = {text: Trained() for text in distinct}
    for number in range(rounds):
        for text in distinct if number % 2 == 0 else reversed(distinct):
            if not trained[text].died:
                _train(task, text, seconds, trained[text])
    return {name: trained[json.dumps(values, sort_keys=True)] for name, values in configs.items()}


def ratios(one: Trained, other: Trained) -> list[float]:
    """How many times as fast, round by round."""
    return [a / b for a, b in zip(one.rates, other.rates, strict=False)]


def _train(task: Task, config: str, seconds: float, trained: Trained) -> None:
    values = {**defaults(), **json.loads(config)}
    samples = int(values["batch_size"] or 1) * int(values["gradient_accumulation_steps"] or 1)
    steps = math.ceil(task.epoch_samples / samples)
    limit = 0 if task.memory_limit is None else parse_bytes(task.memory_limit)
    command = [sys.executable, str(LOOP), task.target, config, str(seconds), str(steps), str(limit), task.device]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        trained.died = f"no answer in {MOST_SECONDS:.0f} s"
        return
    if ended.returncode != 0:
        last = (ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"])[-1]
        trained.died = last[:120]
        return
    trained.rates.append(float(ended.stdout))
