"""Are the answers those that an expert would give? Eight targets, searched repeatedly and checked in plain loops.

    python -m benchmarks.answers_check                                          everything: about an hour on two cores
    python -m benchmarks.answers_check --stages search,load --targets tabular   a slice; the next call goes on
    python -m benchmarks.answers_check --stages table                           what is there

From the root of the repository. Each target is searched `--rounds` times at `--seconds` as its user would, and once
beside a load that keeps one core busy. The plain loops (`benchmarks/plain_loop.py`, which knows nothing of autotune)
then screen the answers, what the searches confirmed, and a small hand-made grid. They run, in interleaved rounds: the
answers, the best three of the screening, each answer without each of its changes and with those that only the best
three make, and where no batch is declared the curve over batches. From these:

(a) the recommended runs at 97 % of the best known in the median, and at 93 % always;
(b) all quiet searches of a target have the same essential settings, in all but one target; beside the load the answer
    is the same, or undecided. Essential is a setting whose other value changes the rate by more than 2 %; batches are
    the same within a power of two;
(c) every change that is kept is measurably worth it, none that is left out is worth more than 2 %;
(d) the command ends within 110 % of its budget;
(e) where no batch is declared, it is the knee of the curve within a power of two, without accumulation.

Each target's numbers lie in `--folder` as one small JSON file, its studies and what the searches said beside it, in
`runs/`. What is there is not run again, a failed search neither: it is a result. Delete the file to begin anew. Three
rounds of plain loops are the least that says anything, and about what `--minutes` holds; the next call adds some, until
there are `--plain-rounds`. Where it leaves changes undecided, more of both tell.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from msgspec.structs import replace

from benchmarks.answers_check.records import Answers, keep, known
from benchmarks.answers_check.searching import searched
from benchmarks.answers_check.targets import TARGETS, Target, chosen
from benchmarks.answers_check.telling import lines
from benchmarks.answers_check.training import Effort, trained
from benchmarks.surfaces.words import here

STAGES = ("search", "load", "plain", "table")


def main() -> None:
    options = arguments(sys.argv[1:])
    # A shell starts background jobs with Ctrl-C ignored; a polite stop must end searches and load as Ctrl-C does.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)
    targets = chosen(options.targets)
    try:
        run(targets, options)
    except KeyboardInterrupt:
        sys.exit("Interrupted. The same command goes on.")
    if "table" in options.stages:
        told = {target.name: found for target in targets if (found := known(options.folder, target.name))}
        print("\n".join(lines(targets, told, options.rounds)))


def arguments(given: list[str]) -> argparse.Namespace:
    """The options. Ends the program for those that mean nothing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="all", help=f"{', '.join(target.name for target in TARGETS)}")
    parser.add_argument("--rounds", type=int, default=3, help="quiet searches of each target")
    parser.add_argument("--seconds", type=float, default=60.0, help="time budget of each search")
    parser.add_argument("--load", action=argparse.BooleanOptionalAction, default=True, help="search beside a load too")
    parser.add_argument("--stages", default=",".join(STAGES), help=f"only these: {', '.join(STAGES)}")
    parser.add_argument("--trained", type=float, default=2.0, help="seconds of each plain loop in the rounds")
    parser.add_argument("--plain-rounds", type=int, default=5, help="of plain loops, however many calls they take")
    parser.add_argument("--minutes", type=float, default=2.9, help="of plain loops, for each target in one call")
    parser.add_argument("--folder", type=Path, default=Path("studies/answers"), help="where everything is kept")
    options = parser.parse_args(given)
    options.stages = options.stages.split(",")
    if unknown := set(options.stages) - set(STAGES):
        parser.error(f"no stage is called {', '.join(sorted(unknown))}: there are {', '.join(STAGES)}")
    return options


def run(targets: tuple[Target, ...], options: argparse.Namespace) -> None:
    """The stages that measure. A whole turn of searches before the next, so that drift meets all targets alike."""
    numbers = [*range(1, options.rounds + 1)] if "search" in options.stages else []
    numbers += [0] if "load" in options.stages and options.load else []
    for number in numbers:
        for target in targets:
            answers = begun(target, options)
            if number not in (one.number for one in answers.searches):
                search = searched(target, number, options.seconds, options.folder)
                keep(options.folder, replace(answers, searches=(*answers.searches, search)))
                print(f"  {search.seconds:.0f} s {search.failure or search.values}", file=sys.stderr, flush=True)
    if "plain" in options.stages:
        effort = Effort(seconds=options.trained, rounds=options.plain_rounds, minutes=options.minutes)
        for target in targets:
            trained(target, begun(target, options), effort, lambda answers: keep(options.folder, answers))


def begun(target: Target, options: argparse.Namespace) -> Answers:
    """What is there, or nothing yet. Ends the program where it is of another time budget."""
    found = known(options.folder, target.name)
    if found is None:
        return Answers(target=target.name, budget_seconds=options.seconds, machine=here())
    if found.budget_seconds != options.seconds:
        sys.exit(
            f"{options.folder}/{target.name}.json was made with --seconds {found.budget_seconds:g}. Use that, another "
            f"--folder, or delete the file."
        )
    return found


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
