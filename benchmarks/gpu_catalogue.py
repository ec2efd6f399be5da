"""Trainings that GPU users have: `autotune search` against the usual defaults, an expert, peers and a coarse grid.

    python -m benchmarks.gpu_catalogue [--targets resnet50,unet] [--time-budget 100s] [--minutes 9] [--grid]
    python -m benchmarks.gpu_catalogue --smoke --targets unet --time-budget 20s     a rehearsal on a CPU

From the root of the repository. For each target, into `--place`: the model's FLOP, the search at the product's default
budget, what the expert, Lightning and Accelerate pick, with `--grid` every cell of a coarse grid, and then all picks in
turn in the plain loop at the held global batch. What is done is kept after each stage and not done again, so the same
line goes on where `--minutes` ended it; a stage that would not end in time is left for the next call. A target whose
needs are not installed is named and not run. The table of all that is there comes last.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
import traceback
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from msgspec.structs import replace

from autotune.core import codec
from autotune.core.records import Environment
from benchmarks.answers import COLUMNS, USUAL, Answer, lines, sources, verdicts
from benchmarks.catalogue import CATALOGUE, SMALL, catalogue, missing
from benchmarks.gpu_questions import look
from benchmarks.peers import Pick
from benchmarks.stages import DEFAULT_BUDGET, STAGES, Slice
from benchmarks.surfaces.tasks import Task
from benchmarks.surfaces.words import heading, there

PACKAGES = ("torchvision", "timm", "transformers", "lightning", "pytorch-lightning", "accelerate", "optuna")


def advance(task: Task, answer: Answer, now: Slice) -> Answer:
    """Stages in turn as long as there is time; one that fails is noted, and tried again by the next call."""
    for stage in STAGES:
        if now.options.stages and stage.name not in now.options.stages.split(","):
            continue
        if stage.is_done(answer, task, now):
            continue
        needed, left = stage.seconds(answer, task, now), max(0.0, now.left)
        if needed > left:
            print(
                f"{task.name}: {stage.name} may take {needed:.0f} s, {left:.0f} are left", file=sys.stderr, flush=True
            )
            break
        print(f"{task.name}: {stage.name}", file=sys.stderr, flush=True)
        try:
            answer = stage.run(replace(answer, notes=_without(answer.notes, stage.name)), task, now)
        except Exception as error:  # whatever a stage dies of, the others are worth their time
            traceback.print_exc()  # a GPU may not be there twice
            note = f"{stage.name}: {type(error).__name__}: {error}"[:300]
            answer = replace(answer, notes=(*_without(answer.notes, stage.name), note))
            print(f"{task.name}: {note}", file=sys.stderr, flush=True)
        codec.write(stored(task, now.options), answer)
    return answer


def _without(notes: tuple[str, ...], stage: str) -> tuple[str, ...]:
    return tuple(note for note in notes if not note.startswith(f"{stage}: "))


def stored(task: Task, options: argparse.Namespace) -> Path:
    return Path(options.place, f"{task.name}.json")


def known(task: Task, options: argparse.Namespace) -> Answer | None:
    """What earlier calls left."""
    return codec.read(stored(task, options), Answer) if stored(task, options).is_file() else None


def begun(task: Task, environment: Environment, options: argparse.Namespace) -> Answer:
    """The same, or an empty answer."""
    if answer := known(task, options):
        return answer
    command = shlex.join(["python", "-m", "benchmarks.gpu_catalogue", *sys.argv[1:]])
    return Answer(
        task=task.name, command=command, environment=environment, versions=versions(),
        time_budget=options.time_budget or "", picks={USUAL: Pick(values=dict(task.baseline))}, trained={},
    )  # fmt: skip


def versions() -> dict[str, str]:
    """Of what targets and peers are made of, where it is installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="all", help=f"{', '.join(task.name for task in CATALOGUE)}")
    parser.add_argument("--time-budget", help=f"of each search [default: the product's, {DEFAULT_BUDGET}]")
    parser.add_argument(
        "--minutes", type=float, default=1e6, help="begin nothing that would not end within; 0: table only"
    )
    parser.add_argument("--stages", default="", help=f"only these: {', '.join(stage.name for stage in STAGES)}")
    parser.add_argument("--grid", action="store_true", help="also every cell of a coarse grid")
    parser.add_argument("--trained", type=float, default=3.0, help="seconds of each plain loop")
    parser.add_argument("--rounds", type=int, default=2, help="of plain loops")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--place", default="studies/gpu", help="where studies and answers lie")
    parser.add_argument("--smoke", action="store_true", help="tiny targets on the CPU, to see that it all runs")
    options = parser.parse_args()
    if options.smoke:
        os.environ[SMALL], options.device = "1", "cpu"
    # A shell starts background jobs with Ctrl-C ignored, and searches that are to be interrupted would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    now = Slice(options=options, ends_at=time.monotonic() + 60 * options.minutes)
    Path(options.place).mkdir(parents=True, exist_ok=True)
    tasks = catalogue(options.targets, device=options.device, small=options.smoke)
    lacking = {task.name: f"not run, {why}" for task in tasks if (why := missing(task.target))}
    environment = look(options.device) if options.minutes else "no time to measure"
    if isinstance(environment, str):
        lacking |= {task.name: f"not run, {environment}" for task in tasks}
    else:
        for task in tasks:
            if task.name not in lacking:
                advance(task, begun(task, environment, options), now)
    tell([(task, answer) for task in tasks if (answer := known(task, options))], lacking)


def tell(answers: list[tuple[Task, Answer]], lacking: dict[str, str]) -> None:
    """The table of what is there, whenever and wherever it was measured, and a line for what is not."""
    if answers:
        environment = answers[0][1].environment
        made_of = ", ".join(f"{name} {number}" for name, number in answers[0][1].versions.items())
        print(f"{there(environment)}; {made_of}\n\n{heading(*COLUMNS)}")
        for task, answer in answers:
            print("\n".join(lines(answer, task)))
        print(f"\n{sources(environment.device_name)}")
    for task, answer in answers:
        for sentence in (verdicts(answer), *(f"{task.name}: {note}" for note in answer.notes)):
            print(sentence, end="\n" if sentence else "")
        lacking.pop(task.name, None)
    for name, why in lacking.items():
        print(f"{name}: {why}")


if __name__ == "__main__":
    main()
