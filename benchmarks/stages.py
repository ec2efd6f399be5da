"""The steps on the way to an answer about one target of the catalogue, each with the time that it may take."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from autotune.core import codec
from autotune.launch.subprocess import SubprocessLauncher
from autotune.units import parse_seconds
from benchmarks.answers import BEST, EXPERT, Answer, best_of, configs
from benchmarks.peers import MOST_SECONDS, OURS, Pick, ours, theirs
from benchmarks.surfaces import plain
from benchmarks.surfaces.recording import record
from benchmarks.surfaces.tasks import Task

PEERS = {
    EXPERT: "expert",
    "Lightning `scale_batch_size`": "lightning-power",
    "Accelerate `find_executable_batch_size`": "accelerate",
}
DEFAULT_BUDGET = "10m"  # of `autotune search`
OVERRUN_SECONDS = 60.0  # for the confirmation of a search that its budget does not hold
START_SECONDS = 15.0  # of a process that imports torch and builds a model
FLOPS_SECONDS, CELL_SECONDS = 180.0, 10.0
LEAVE_SECONDS = 30.0  # for a search that was interrupted
KEEP_SECONDS = 10.0  # that it takes as a rule, on a machine that has nothing else to do


@dataclass(frozen=True, kw_only=True)
class Slice:
    """One call: what was asked for, and the moment at which it ends."""

    options: argparse.Namespace
    ends_at: float  # of the monotonic clock

    @property
    def left(self) -> float:
        """Seconds, possibly none."""
        return self.ends_at - time.monotonic()


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One step on the way to an answer."""

    name: str
    is_done: Callable[[Answer, Task, Slice], bool]
    seconds: Callable[[Answer, Task, Slice], float]  # that it may take
    run: Callable[[Answer, Task, Slice], Answer]


def count_flops(answer: Answer, task: Task, now: Slice) -> Answer:
    """On the device itself, in a process of its own."""
    command = (sys.executable, "-m", "benchmarks.flops", task.target, task.device)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=FLOPS_SECONDS, check=False)
    if ended.returncode:
        raise RuntimeError((ended.stderr.strip().splitlines() or ["no reason given"])[-1])
    return replace(answer, **json.loads(ended.stdout.splitlines()[-1]))


def search(answer: Answer, task: Task, now: Slice) -> Answer:
    """The product's own command, or the rest of what an earlier call began; what it says is kept beside the study."""
    command = search_command(task, now.options)
    print(shlex.join(command[1:]), file=sys.stderr, flush=True)
    with Path(now.options.place, f"{task.name}.txt").open("a") as terminal:
        child, limit = subprocess.Popen(command, stdout=terminal, stderr=subprocess.STDOUT), search_limit(now)
    try:
        status = child.wait(limit)
    except subprocess.TimeoutExpired as late:
        interrupt(child)
        raise RuntimeError(f"no end in {limit:.0f} s, interrupted; the next call goes on with its study") from late
    if status:
        pick = Pick(values=None, note=f"no recommendation: exit status {status}")
    else:
        pick = ours(task, Path(now.options.place), 0.0)
    return replace(answer, picks={**answer.picks, OURS: pick})


def search_limit(now: Slice) -> float:
    """Seconds after which a search is interrupted: in time for its study to be kept when the slice ends."""
    return min(budget_seconds(now.options) + OVERRUN_SECONDS, max(now.left - KEEP_SECONDS, 0.0))


def search_command(task: Task, options: argparse.Namespace) -> list[str]:
    """As a user would type it; the baseline and the global batch are the task's."""
    batch, accumulation = task.baseline.values()
    budget = ["--time-budget", options.time_budget] if options.time_budget else []
    return [
        sys.executable, "-m", "autotune", "search", task.target, "--study", str(Path(options.place, task.name)),
        "--device", task.device, "--global-batch", str(task.global_batch),
        "--baseline", f"batch={batch},accum={accumulation}", "--verbose", *budget,
    ]  # fmt: skip


def interrupt(child: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does; the study can be gone on with. Killed if it does not leave."""
    child.send_signal(signal.SIGINT)
    try:
        child.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def budget_seconds(options: argparse.Namespace) -> float:
    return parse_seconds(options.time_budget or DEFAULT_BUDGET)


def ask_peer(name: str) -> Callable[[Answer, Task, Slice], Answer]:
    """The stage of one peer."""

    def ask(answer: Answer, task: Task, now: Slice) -> Answer:
        return replace(answer, picks={**answer.picks, name: theirs(task, PEERS[name], 0.0)})

    return ask


def has_pick(name: str) -> Callable[[Answer, Task, Slice], bool]:
    """Whether that tool has picked something; one that is not installed is not asked again."""

    def has(answer: Answer, task: Task, now: Slice) -> bool:
        pick = answer.picks.get(name)
        return pick is not None and (pick.values is not None or "not installed" in pick.note)

    return has


def measure_grid(answer: Answer, task: Task, now: Slice) -> Answer:
    """Every cell of the coarse grid by a probe each; the surface is kept for replays."""
    place = Path(now.options.place, "surfaces")
    place.mkdir(exist_ok=True)
    surface = record(task, SubprocessLauncher(), answer.command)
    codec.write(place / f"{task.name}.json", surface)
    return replace(answer, picks={**answer.picks, BEST: best_of(surface)})


def train(answer: Answer, task: Task, now: Slice) -> Answer:
    """All picks in turn; with any new pick all anew, because rates of different hours are not compared."""
    trained = plain.in_turn(task, configs(answer, task), now.options.trained, now.options.rounds)
    return replace(answer, trained=trained)


def training_seconds(answer: Answer, task: Task, now: Slice) -> float:
    distinct = len({str(sorted(values.items())) for values in configs(answer, task).values()})
    return distinct * now.options.rounds * (START_SECONDS + 1.2 * now.options.trained)


STAGES = (
    Stage(
        name="flops",
        is_done=lambda answer, task, now: answer.flops_per_sample is not None,
        seconds=lambda answer, task, now: START_SECONDS,
        run=count_flops,
    ),
    Stage(
        name="search",
        is_done=has_pick(OURS),
        seconds=lambda answer, task, now: budget_seconds(now.options),
        run=search,
    ),
    *(
        Stage(name=peer, is_done=has_pick(name), seconds=lambda *_: MOST_SECONDS / 3, run=ask_peer(name))
        for name, peer in PEERS.items()
    ),
    Stage(
        name="grid",
        is_done=lambda answer, task, now: not now.options.grid or BEST in answer.picks,
        seconds=lambda answer, task, now: CELL_SECONDS * math.prod(map(len, task.grid.values())),
        run=measure_grid,
    ),
    Stage(
        name="train",
        is_done=lambda answer, task, now: set(answer.trained) == set(configs(answer, task)),
        seconds=training_seconds,
        run=train,
    ),
)
