"""The same targets through other tools: what each one picks, what that took, and what the pick is worth when trained.

    python -m benchmarks.peers [--tasks denoiser,jpeg_cnn] [--seconds 30] [--rounds 2] [--studies studies/real]

From the root of the repository, with the Python of an environment that has the peers beside autotune (`pip install
lightning accelerate`, and `pip install --no-deps ludwig`, of which only the tuner is used). One that is not installed
is named and not run. Each searches in a process of its own under the task's memory limit. Ours and Optuna by hand have
the same seconds; ours overruns them where its confirmation needs it, and what it really took is printed. A study of
`search_real run` in `--studies` is taken instead of searching again.

What a tool of batch sizes picks is trained at the global batch that is held: the largest of its divisors that is not
above the pick, the rest accumulated, all else at PyTorch's defaults. Whether the pick itself, as it was given, survives
is tried apart. About three minutes a task on two cores of a quiet Xeon.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import autotune
from autotune.core.records import Value
from autotune.knobs import defaults
from autotune.objectives.verdict import judge
from autotune.study import disk
from benchmarks.surfaces import plain
from benchmarks.surfaces.tasks import TASKS, Task, chosen
from benchmarks.surfaces.words import described, heading, here, row

PEERS = {  # as the table calls it -> what the child is asked for
    "Lightning `scale_batch_size`, power": "lightning-power",
    "Lightning `scale_batch_size`, binsearch": "lightning-binsearch",
    "Accelerate `find_executable_batch_size`": "accelerate",
    "Ludwig's batch size tuner": "ludwig",
    "Optuna by hand, TPE": "optuna-tpe",
    "Optuna by hand, GP": "optuna-gp",
}
OURS, TODAY = "autotune", "today's"
MOST_SECONDS = 120.0  # of a peer that has no budget of its own
COLUMNS = (
    "tool", "pick", "tries", "out of memory", "took", "pick had run", "pick survives", "trained as", "samples/s",
    "of the best",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Pick:
    """What a tool came to."""

    values: dict[str, Value] | None  # None: nothing, for the reason in `note`
    tries: int = 0
    out_of_memory: int = 0
    seconds: float = 0.0
    had_run: bool = False  # the very configuration, while it was searched for
    promised: float | None = None  # samples/s that the tool says it runs at; None: it says nothing
    note: str = ""


def ours(task: Task, studies: Path, seconds: float) -> Pick:
    """The recommendation of a real search, or of one that lies there."""
    study = studies / task.name
    began = time.monotonic()
    kept = (study / disk.BEST).is_file()
    if not kept:
        command = (sys.executable, "-m", "autotune", *task.command(study, seconds))
        status = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
        if status:
            return Pick(values=None, seconds=time.monotonic() - began, note=f"no recommendation: exit status {status}")
    result, request = autotune.load_result(study), disk.read_request(study)
    trials = disk.read_trials(study)
    lost = sum(judge(trial.result, request).constraints["memory"] > 0 for trial in trials)
    return Pick(
        values=dict(result.params),
        tries=len(trials),
        out_of_memory=lost,
        seconds=result.seconds if kept else time.monotonic() - began,
        had_run=True,
        promised=result.samples_per_second,
    )


def theirs(task: Task, peer: str, seconds: float) -> Pick:
    """What a peer's child comes back with."""
    command = (sys.executable, "-m", "benchmarks.peer_searches", peer, task.name, str(seconds), task.device)
    began = time.monotonic()
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS + seconds, check=False)
    except subprocess.TimeoutExpired:
        return Pick(values=None, seconds=time.monotonic() - began, note="no answer in time")
    took = time.monotonic() - began
    try:
        found = json.loads(ended.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = (ended.stderr.strip().splitlines() or [""])[-1]
        return Pick(values=None, seconds=took, note=f"died with exit status {ended.returncode}: {last[:100]}")
    if "missing" in found:
        return Pick(values=None, note=f"not installed, not run ({found['missing']})")
    return Pick(
        values=found["config"], tries=found["tries"], out_of_memory=found["out_of_memory"], seconds=took,
        had_run=found["ran"], note=f"died: {found['died']}" if "died" in found else "",
    )  # fmt: skip


def held(values: dict[str, Value], task: Task) -> dict[str, Value]:
    """The pick, complete, at the held global batch: its largest divisor that is not above the picked micro-batch."""
    batch = min(int(values["batch_size"] or 1), task.global_batch)
    micro = next(size for size in range(batch, 0, -1) if task.global_batch % size == 0)
    return {**defaults(), **values, "batch_size": micro, "gradient_accumulation_steps": task.global_batch // micro}


def compared(task: Task, options: argparse.Namespace) -> list[str]:
    """Every tool on one task, as lines of a table."""
    picks = {TODAY: Pick(values=dict(task.baseline)), OURS: ours(task, Path(options.studies), options.seconds)}
    for name, peer in PEERS.items():
        print(f"{task.name}: {name}", file=sys.stderr, flush=True)
        picks[name] = theirs(task, peer, options.seconds)
    made = {name: pick.values for name, pick in picks.items() if pick.values is not None}
    configs = {name: held(values, task) for name, values in made.items()}
    trained = plain.in_turn(task, configs, options.trained, options.rounds)
    apart = {name: values for name, values in made.items() if values["batch_size"] != configs[name]["batch_size"]}
    alone = plain.in_turn(task, apart, 0.0, 1)
    best = max((each.rate or 0.0 for each in trained.values()), default=0.0) or 1.0
    return [
        line(name, pick, configs.get(name), trained.get(name), alone.get(name), best) for name, pick in picks.items()
    ]


def line(
    name: str, pick: Pick, config: dict[str, Value] | None, trained: plain.Trained | None,
    alone: plain.Trained | None, best: float,
) -> str:  # fmt: skip
    """One tool on one task; `alone` is the pick as it was given, where that differs from what was trained."""
    if pick.values is None or config is None or trained is None:
        return row(
            name, pick.note, pick.tries or "–", pick.out_of_memory, f"{pick.seconds:.0f} s", *("–" for _ in range(5))
        )
    death = (alone or trained).died
    today = name == TODAY
    return row(
        name,
        described(pick.values),
        "–" if today else pick.tries,
        "–" if today else pick.out_of_memory,
        "–" if today else f"{pick.seconds:.0f} s",
        "–" if today else "yes" if pick.had_run else "**no**",
        f"**no**: {death}" if death else "yes",
        described(config),
        "–" if trained.rate is None else f"{trained.rate:,.0f}",
        "–" if trained.rate is None else f"{trained.rate / best:.0%}",
    )


def versions() -> str:
    """Of the peers that are installed."""
    found = []
    for name in ("lightning", "accelerate", "ludwig", "optuna"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="denoiser,jpeg_cnn", help=f"{', '.join(task.name for task in TASKS)}, all")
    parser.add_argument("--seconds", type=float, default=30.0, help="of searching, for ours and for Optuna by hand")
    parser.add_argument("--trained", type=float, default=3.0, help="seconds of each plain loop")
    parser.add_argument("--rounds", type=int, default=2, help="of plain loops")
    parser.add_argument("--studies", default="studies/real", help="where ours lie, or are searched")
    options = parser.parse_args()
    print(f"{here()}; {versions()}; {options.rounds} interleaved rounds of at least {options.trained:g} s", flush=True)
    for task in chosen(options.tasks):
        lines = compared(task, options)
        print(f"\n### {task.name}: {task.what}, global batch {task.global_batch}, {task.memory_limit} of memory\n")
        print(heading(*COLUMNS))
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
