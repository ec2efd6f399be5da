"""What another malloc is worth to trainings on a CPU: plain loops that know nothing of autotune.

    python benchmarks/malloc.py [--rounds 5] [--seconds 2] [--only resnet,tabular]
    python benchmarks/malloc.py --together --seconds 5

A way is a set of environment variables: a library that LD_PRELOAD names, or thresholds of glibc's own malloc. Every
cell of the table is a process of its own for each way and round, every other round in reverse order; it shows the
geometric mean of the ratios to glibc within a round, with their 95 % interval, and the largest resident set. A library
that is not installed is left out, and said.

`--together` is for a machine that others use too: all ways of a round train at the same time, with one thread each, and
their CPU time is the clock.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import runpy
import statistics
import subprocess
import sys
import time
from pathlib import Path

from scipy.stats import t as student

from autotune.machine.environment import torch_version
from autotune.machine.host import cpu_name, usable_cores

HERE = Path(__file__).parent
LOOP, BY_CPU_TIME = HERE / "plain_loop.py", "by-cpu-time"
CELLS = {
    "resnet": ({"batch_size": 16}, {"batch_size": 128}),
    "tabular": ({"batch_size": 128}, {"batch_size": 8192}),
    "masked_lm": ({"batch_size": 16}, {"batch_size": 64}),
    "jpeg_cnn": ({"batch_size": 32},),
}
KEPT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(4 << 30)}  # nothing is given back
WAYS = {
    "glibc": {},
    "jemalloc": {"LD_PRELOAD": "libjemalloc.so.2"},
    "tcmalloc": {"LD_PRELOAD": "libtcmalloc_minimal.so.4"},
    "glibc keeps": KEPT,
    "glibc keeps huge pages": {**KEPT, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    "torch huge pages": {"THP_MEM_ALLOC_ENABLE": "1"},
}


def is_installed(way: dict[str, str]) -> bool:
    """Whether the dynamic loader finds what `way` preloads: it complains and goes on where it does not."""
    return not subprocess.run(["true"], env={**os.environ, **way}, capture_output=True, check=True).stderr


def started(target: str, config: dict, way: dict[str, str], options: argparse.Namespace) -> subprocess.Popen:
    """A plain loop that trains."""
    loop = [__file__, BY_CPU_TIME] if options.together else [LOOP]
    threads = {"num_threads": 1} if options.together else {}
    words = [HERE / f"targets/{target}.py", json.dumps(config | threads), str(options.seconds), "3"]
    return subprocess.Popen(
        [sys.executable, *loop, *words], stdout=subprocess.PIPE, text=True, env={**os.environ, **way}
    )


def ended(process: subprocess.Popen) -> tuple[float, int]:
    """Samples/s of a plain loop, and the bytes of its largest resident set."""
    with process:
        assert process.stdout is not None
        rate = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"a plain loop ended with {process.returncode}")
    return float(rate), used.ru_maxrss * 1024


def measured(target: str, config: dict, ways: dict, number: int, options: argparse.Namespace) -> dict:
    """Of one round: rate and bytes of each way."""
    order = list(ways if number % 2 == 0 else reversed(ways))
    if options.together:
        running = {name: started(target, config, ways[name], options) for name in order}
        return {name: ended(process) for name, process in running.items()}
    return {name: ended(started(target, config, ways[name], options)) for name in order}


def interval(ratios: list[float]) -> str:
    """Geometric mean and its 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.mean(logs)
    if len(logs) < 2 or not any(logs):
        return f"{math.exp(mean):.2f}"
    half = student.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(mean):.2f} ({math.exp(mean - half):.2f} to {math.exp(mean + half):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each plain loop")
    parser.add_argument("--only", default=",".join(CELLS), help="targets")
    parser.add_argument("--ways", default=",".join(WAYS), help="besides glibc")
    parser.add_argument("--together", action="store_true", help="all ways at once, by CPU time")
    options = parser.parse_args()
    asked = {name: way for name, way in WAYS.items() if name in ("glibc", *options.ways.split(","))}
    ways = {name: way for name, way in asked.items() if is_installed(way)}
    print(
        f"{cpu_name()}, {usable_cores()} cores, {platform.platform(terse=True)}, Python {platform.python_version()}, "
        f"torch {torch_version()}; {options.rounds} rounds of {options.seconds:g} s"
        f"{' of CPU time, one thread each, all at once' if options.together else ', interleaved'}"
    )
    for name in asked.keys() - ways.keys():
        print(f"{name}: not run, {WAYS[name]['LD_PRELOAD']} is not installed")
    print(f"\n| training | {' | '.join(ways)} |\n|{' --- |' * (len(ways) + 1)}")
    for target, config in ((name, one) for name in options.only.split(",") for one in CELLS[name]):
        rounds = [measured(target, config, ways, number, options) for number in range(options.rounds)]
        cells = [
            f"{interval([found[name][0] / found['glibc'][0] for found in rounds])}, "
            f"{statistics.median(found[name][1] for found in rounds) / 2**20:,.0f} MiB"
            for name in ways
        ]
        said = ", ".join(f"{key} {value}" for key, value in config.items())
        print(f"| {target}, {said} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == [BY_CPU_TIME]:
        time.perf_counter = time.process_time
        sys.argv[:2] = [str(LOOP)]
        runpy.run_path(str(LOOP), run_name="__main__")
    else:
        main()
