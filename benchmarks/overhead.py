"""What a probe costs besides measuring: process start to first optimizer step, and last step to the end seen outside.

    python benchmarks/overhead.py [--runs 9]

Each forked and each fresh probe is followed by a bare script that imports and builds the same things, takes one step
and leaves at once. The difference is what isolation and measuring add; below zero where importing is spared.
"""

import argparse
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from autotune.core.records import Config
from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.knobs import defaults
from autotune.launch.subprocess import SubprocessLauncher
from autotune.machine.environment import torch_version
from autotune.machine.host import cpu_name, usable_cores

ROOT = Path(__file__).parent.parent
GOAL_SECONDS = {"fork": 0.3, "fresh": 1.6}  # of a forked probe in all; of a fresh one over what the bare script costs
TARGETS = ("benchmarks/targets/trivial.py", "examples/digits_cnn.py", "benchmarks/targets/small_bert.py")
# What is measured takes as little time as it may, and is left out by its own clock.
BUDGET = ProbeBudget(min_warmup_seconds=0.0, max_compute_seconds=0.05, max_loader_seconds=0.05, max_seconds=0.2)
MEASURED = ("alone", "measure")
BARE = """
import importlib.util, os, sys
import torch
spec = importlib.util.spec_from_file_location("target", sys.argv[1])
target = importlib.util.module_from_spec(spec)
sys.modules["target"] = target
spec.loader.exec_module(target)
model, data = target.model(), target.dataset()
held_out = target.validation() if hasattr(target, "validation") else None
optimizer = target.optimizer(model.parameters())
batch = next(iter(torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)))
loss = target.loss(model, batch) if hasattr(target, "loss") else model(**batch).loss  # as transformers' models have it
loss.backward()
optimizer.step()
os._exit(0)
"""


def probe(launcher: SubprocessLauncher, target: str) -> dict[str, float]:
    """Seconds of one probe by what it did, the measuring itself left out."""
    request = ProbeRequest(target=target, config=Config(values=defaults()), device="cpu", budget=BUDGET)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = launcher.run(request, Path(folder))
        total = time.perf_counter() - began
    measured = result.measurement
    assert measured is not None, result.failure
    phases = result.phase_seconds
    first_step = measured.first_batch_seconds + measured.warmup_seconds[0]
    measuring = sum(phases.get(name, 0.0) for name in MEASURED) + phases["warm-up"] - first_step
    shown = {name: phases[name] for name in ("start", "load", "build")}
    after = sum(seconds for name, seconds in phases.items() if name not in (*shown, *MEASURED, "warm-up"))
    outside = total - sum(phases.values())
    return {**shown, "first step": first_step, "after": after, "outside": outside, "total": total - measuring}


def bare(target: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", BARE, target], cwd=ROOT, check=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--targets", nargs="+", default=TARGETS, help="files below the repository's root")
    options = parser.parse_args()
    print(
        f"{cpu_name()}, {usable_cores()} cores, {platform.platform(terse=True)}, Python {platform.python_version()}, "
        f"torch {torch_version()}; medians of {options.runs} interleaved runs, seconds\n"
    )
    columns = "start | load | build | first step | after the last | outside | in all | bare script | over it"
    print(f"| target | probe | {columns} |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    worst = dict.fromkeys(GOAL_SECONDS, 0.0)
    for target in options.targets:
        if "transformers" in (ROOT / target).read_text() and find_spec("transformers") is None:
            print(f"| {Path(target).stem} | did not run: transformers is not installed |" + " |" * 9)
            continue
        for isolation, seconds in measured(target, options.runs).items():
            probes, scripts = seconds
            medians = [statistics.median(run[name] for run in probes) for name in probes[0]]
            over = statistics.median(run["total"] - script for run, script in zip(probes, scripts, strict=True))
            worst[isolation] = max(worst[isolation], medians[-1] if isolation == "fork" else over)
            cells = " | ".join(f"{seconds:.2f}" for seconds in (*medians, statistics.median(scripts), over))
            print(f"| {Path(target).stem} | {isolation} | {cells} |", flush=True)
    for isolation, goal in GOAL_SECONDS.items():
        what = "in all" if isolation == "fork" else "over the bare script"
        verdict = "kept" if worst[isolation] <= goal else "missed"
        print(f"\ngoal of {isolation}: at most {goal} s {what}: {verdict}")


def measured(target: str, runs: int) -> dict[str, tuple[list[dict[str, float]], list[float]]]:
    """Of each kind the probes and the bare scripts, in turn, after a forked probe that starts the fork server."""
    found: dict[str, tuple[list[dict[str, float]], list[float]]] = {kind: ([], []) for kind in GOAL_SECONDS}
    with SubprocessLauncher(isolation="fork") as fork:
        launchers = {"fork": fork, "fresh": SubprocessLauncher()}
        probe(fork, str(ROOT / target))
        for _ in range(runs):
            for kind, (probes, scripts) in found.items():
                probes.append(probe(launchers[kind], str(ROOT / target)))
                scripts.append(bare(target))
    return found


if __name__ == "__main__":
    main()
