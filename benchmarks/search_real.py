"""How good is a search on real targets? Exhaustively measured surfaces, samplers replayed over them, and real searches.

    python -m benchmarks.search_real record [--tasks resnet,denoiser]   every cell of each grid, into studies/surfaces
    python -m benchmarks.search_real replay [--seeds 10]                every sampler over what was recorded, in seconds
    python -m benchmarks.search_real run [--seconds 45] [--searches 3]  `autotune search`, against the exhaustive best

From the root of the repository. On two quiet cores `record` takes about six minutes and `run` another six. A replay
probes nothing: a probe's answer is the one that was recorded, so it also knows how long it took. A real search is free
to look beyond the grid, over the whole space of the product, and its recommendation may beat the grid's best; both are
trained in turn in the plain loop, at the same global batch.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

import optuna

import autotune
from autotune.core import codec
from autotune.core.records import Config
from autotune.core.results import ProbeResult
from autotune.launch.subprocess import SubprocessLauncher
from autotune.sampler.space import build
from autotune.study import disk
from benchmarks.surfaces import plain, samplers
from benchmarks.surfaces.recording import record
from benchmarks.surfaces.surface import Surface, read
from benchmarks.surfaces.tasks import TASKS, Task, chosen
from benchmarks.surfaces.words import described, heading, here, row, share_of, there

SURFACES, STUDIES = Path("studies/surfaces"), Path("studies/real")
SOON = 20  # probes


def stored(task: Task) -> Path:
    """Where its surface lies."""
    return SURFACES / f"{task.name}.json"


def recorded(task: Task) -> Surface:
    """Its surface. Ends the program where there is none yet."""
    if not stored(task).is_file():
        sys.exit(f"{stored(task)} is not there yet. Record it: {record_command(task)}")
    return read(stored(task))


def record_command(task: Task) -> str:
    """The line that measures its surface."""
    return f"python -m benchmarks.search_real record --tasks {task.name}"


def record_all(tasks: tuple[Task, ...]) -> None:
    """Measure each grid, and print what came out."""
    SURFACES.mkdir(parents=True, exist_ok=True)
    lines = []
    for task in tasks:
        surface = record(task, SubprocessLauncher(), record_command(task), progress)
        codec.write(stored(task), surface)
        config, rate = surface.best
        baseline = surface.rates[surface.request.baseline]
        gain = f"{rate / baseline:.2f}×" if baseline else "–"
        lines.append(
            row(
                f"{task.name} ({task.what})", len(surface.cells), surface.out_of_memory, surface.slowed,
                f"{surface.seconds:.0f} s", described(config.values), f"{rate:,.0f}", gain,
            )
        )  # fmt: skip
    print(f"\n{here()}\n")
    print(heading("surface", "cells", "out of memory", "disturbed", "took", "best", "samples/s", "over the baseline"))
    print("\n".join(lines))


def progress(number: int, count: int, config: Config, result: ProbeResult) -> None:
    """A line for each probe, on standard error."""
    measured = result.measurement
    shown = f"{measured.samples_per_second:,.0f} samples/s" if measured else result.outcome.value
    print(f"{number}/{count} {described(config.values)}: {shown}", file=sys.stderr, flush=True)


def replay_all(tasks: tuple[Task, ...], seeds: int) -> None:
    """Print how many probes each sampler needs, and how the real tuner ends."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    surfaces = {task.name: recorded(task) for task in tasks}
    for task in tasks:
        surface = surfaces[task.name]
        near = sum((rate or 0.0) >= samplers.WITHIN * surface.best[1] for rate in surface.rates.values())
        print(
            f"{task.name} ({task.what}): {len(surface.cells)} cells, {near} within 5 % of the best, "
            f"{surface.out_of_memory} out of memory; {there(surface.request.environment)}; {surface.recorded_at[:10]}"
        )
    print(f"\noptuna {optuna.__version__}, {seeds} seeds; probes with the baseline's; all behind the same guard\n")
    print(heading("sampler", *surfaces, "median", f"within {SOON}", "out of memory before"))
    for name in samplers.NAMES:
        print(sampler_line(name, list(surfaces.values()), seeds), flush=True)
    print("\nThe tuner itself, until it stops, confirms and recommends:\n")
    print(heading("surface", "probes", "then to confirm", "out of memory", "recommended / best", "worst"))
    for task in tasks:
        answers = [samplers.answered(task, surfaces[task.name], seed) for seed in range(seeds)]
        shares = [answer.share for answer in answers]
        print(
            row(
                task.name,
                f"{statistics.median(answer.searched for answer in answers):.0f}",
                f"{statistics.median(answer.confirmed for answer in answers):.0f}",
                f"{statistics.mean(answer.out_of_memory for answer in answers):.1f}",
                f"{statistics.median(shares):.0%}",
                f"{min(shares):.0%}",
            ),
            flush=True,
        )


def sampler_line(name: str, surfaces: list[Surface], seeds: int) -> str:
    """One sampler over all surfaces."""
    by_surface = [[samplers.replayed(name, surface, seed) for seed in range(seeds)] for surface in surfaces]
    runs = [run for each in by_surface for run in each]
    medians = [probes([run.hit for run in each]) for each in by_surface]
    soon = sum(run.hit is not None and run.hit <= SOON for run in runs) / len(runs)
    lost = statistics.mean(run.out_of_memory for run in runs)
    return row(f"`{name}`", *medians, probes([run.hit for run in runs]), f"{soon:.0%}", f"{lost:.1f}")


def probes(hits: list[int | None]) -> str:
    """The median, in words where it is that nothing was found."""
    median = statistics.median(float("inf") if hit is None else hit for hit in hits)
    return "never" if median == float("inf") else f"{median:g}"


def run_all(tasks: tuple[Task, ...], seconds: float, searches: int, trained: float, rounds: int) -> None:
    """Search each target `searches` times, and train the answers beside the best of the grid and the baseline."""
    print(f"{here()}; plain loops of at least {trained:g} s, {rounds} rounds\n")
    print(
        heading(
            "target", "recommended", "samples/s", "grid's best", "samples/s", "recommended / best", "recommended "
            "/ baseline", "search", "of the grid's time", "of the whole space's",
        )
    )  # fmt: skip
    for task in tasks:
        for number in range(1, searches + 1):
            study = STUDIES / (task.name if number == 1 else f"{task.name}-{number}")
            print(searched(task, recorded(task), study, seconds, trained, rounds), flush=True)


def searched(task: Task, surface: Surface, study: Path, seconds: float, trained: float, rounds: int) -> str:
    """One real search and its line."""
    began = time.monotonic()
    command = (sys.executable, "-m", "autotune", *task.command(study, seconds))
    print(shlex.join(command[1:]), file=sys.stderr, flush=True)
    status = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    took = time.monotonic() - began
    if status:
        return row(task.name, f"none: exit status {status}", *("–" for _ in range(5)), f"{took:.0f} s", "–", "–")
    result, request = autotune.load_result(study), disk.read_request(study)
    cells = len(build(request.facts, request.environment, request.goal, request.baseline).configs)
    best = surface.best[0].values
    configs = {"recommended": result.params, "best": best, "baseline": result.baseline}
    ran = plain.in_turn(task, configs, trained, rounds)
    return row(
        task.name,
        described(result.params),
        shown(ran["recommended"]),
        described(best),
        shown(ran["best"]),
        share_of(plain.ratios(ran["recommended"], ran["best"])),
        share_of(plain.ratios(ran["recommended"], ran["baseline"])),
        f"{took:.0f} s, {result.probes} probes",
        f"{took / surface.seconds:.0%} of {surface.seconds:.0f} s",
        f"{took / (cells * surface.probe_seconds):.1%} of {cells} × {surface.probe_seconds:.1f} s",
    )


def shown(trained: plain.Trained) -> str:
    """Samples/s, or why there are none."""
    return f"{trained.rate:,.0f}" if trained.rate is not None else trained.died


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "replay", "run"))
    parser.add_argument("--tasks", default="all", help=f"{', '.join(task.name for task in TASKS)}")
    parser.add_argument("--seeds", type=int, default=10, help="of each sampler, for replay")
    parser.add_argument("--seconds", type=float, default=45.0, help="time budget of each real search")
    parser.add_argument("--searches", type=int, default=1, help="of each target, each in a study of its own")
    parser.add_argument("--trained", type=float, default=3.0, help="seconds of each plain loop")
    parser.add_argument("--rounds", type=int, default=2, help="of plain loops")
    options = parser.parse_args()
    tasks = chosen(options.tasks)
    if options.what == "record":
        record_all(tasks)
    elif options.what == "replay":
        replay_all(tasks, options.seeds)
    else:
        run_all(tasks, options.seconds, options.searches, options.trained, options.rounds)


if __name__ == "__main__":
    main()
