"""How long the page of a study takes, and how large it is: a recorded study with its probes repeated to a number.

    python benchmarks/page.py [--study studies/digits_cnn-xeon] [--probes 100 2000]

Seconds of the processor, on which nothing waits here, so that a busy machine tells the same; the best of three.
"""

import argparse
import itertools
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from autotune.core import codec
from autotune.core.requests import ProbeRequest
from autotune.core.results import ProbeResult
from autotune.machine.host import cpu_name
from autotune.report.page import render
from autotune.study import disk
from autotune.study.view import load_view

ROOT = Path(__file__).parent.parent
GOAL_SECONDS, GOAL_KILOBYTES = 2.0, 300  # with 2,000 probes, with 100
RUNS = 3


def grow(study: Path, folder: Path, count: int) -> None:
    """A copy of the study in `folder` with so many probes: its own in turn, over and over, each with its number."""
    shutil.copytree(study, folder, ignore=shutil.ignore_patterns(disk.PROBES))
    sources = [place for place in sorted((study / disk.PROBES).iterdir()) if (place / disk.RESULT).is_file()]
    for number, source in enumerate(itertools.islice(itertools.cycle(sources), count)):
        place = folder / disk.PROBES / f"{number:04d}"
        place.mkdir(parents=True)
        asked = codec.read(source / disk.REQUEST, ProbeRequest)
        # The baseline is the first probe alone: a search repeats it as a reference.
        purpose = "reference" if number and asked.purpose == "baseline" else asked.purpose
        codec.write(place / disk.REQUEST, replace(asked, number=number, purpose=purpose))
        codec.write(place / disk.RESULT, codec.read(source / disk.RESULT, ProbeResult))


def best_of(run: Callable[[], object]) -> float:
    """Processor seconds of the fastest run."""
    seconds = []
    for _ in range(RUNS):
        began = time.process_time()
        run()
        seconds.append(time.process_time() - began)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=Path, default=ROOT / "studies" / "digits_cnn-xeon")
    parser.add_argument("--probes", type=int, nargs="+", default=[100, 2000])
    arguments = parser.parse_args()
    print(f"{cpu_name()}, Python {platform.python_version()}, {arguments.study.name}")
    print("| probes | reading, s | rendering, s | page, KB |\n| --- | --- | --- | --- |")
    for count in arguments.probes:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "study"
            grow(arguments.study, folder, count)
            reading = best_of(lambda folder=folder: load_view(folder))
            rendering = best_of(lambda folder=folder: render(load_view(folder))) - reading
            size = len(render(load_view(folder)).encode())
        print(f"| {count:,} | {reading:.2f} | {rendering:.2f} | {size / 1000:,.0f} |")
    print(f"goals: both together under {GOAL_SECONDS:g} s with 2,000 probes; {GOAL_KILOBYTES} KB with 100")


if __name__ == "__main__":
    main()
