"""What another malloc is worth to trainings on a CPU: plain loops that know nothing of autotune, in turn.

    python benchmarks/malloc.py [--rounds 5] [--seconds 2] [--only resnet,tabular]

A way is a set of environment variables: a library that LD_PRELOAD names, or thresholds of glibc's own malloc. Every
cell of the table is a process of its own for each way and round, every other round in reverse order; it shows the
geometric mean of the ratios to glibc within a round, with their 95 % interval, and the largest resident set. A library
that is not installed is left out, and said.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

from scipy.stats import t as student

from autotune.machine.environment import torch_version
from autotune.machine.host import cpu_name, usable_cores

HERE = Path(__file__).parent
CELLS = {
    "resnet": ({"batch_size": 16}, {"batch_size": 128}),
    "tabular": ({"batch_size": 128}, {"batch_size": 8192}),
    "masked_lm": ({"batch_size": 16}, {"batch_size": 64}),
    "jpeg_cnn": ({"batch_size": 32}, {"batch_size": 32, "num_workers": 2, "num_threads": 1}),
}
GIGABYTE = str(1 << 30)  # nothing is given back, and nothing mapped alone
KEPT = {"MALLOC_MMAP_THRESHOLD_": GIGABYTE, "MALLOC_TRIM_THRESHOLD_": str(4 << 30)}
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


def trained(target: str, config: dict, way: dict[str, str], options: argparse.Namespace) -> tuple[float, int]:
    """Samples/s of one plain loop, and the bytes of its largest resident set."""
    loop, file = HERE / "plain_loop.py", HERE / f"targets/{target}.py"
    words = [sys.executable, loop, file, json.dumps(config), str(options.seconds), "3"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, **way}) as process:
        assert process.stdout is not None
        rate = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{target} {config} ended with {process.returncode}")
    return float(rate), used.ru_maxrss * 1024


def interval(ratios: list[float]) -> str:
    """Geometric mean and its 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.mean(logs)
    if len(logs) < 2:
        return f"{math.exp(mean):.2f}"
    half = student.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(mean):.2f} ({math.exp(mean - half):.2f} to {math.exp(mean + half):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each plain loop")
    parser.add_argument("--only", default=",".join(CELLS), help="targets")
    parser.add_argument("--ways", default=",".join(WAYS), help="besides glibc")
    options = parser.parse_args()
    asked = {name: way for name, way in WAYS.items() if name in ("glibc", *options.ways.split(","))}
    ways = {name: way for name, way in asked.items() if is_installed(way)}
    print(
        f"{cpu_name()}, {usable_cores()} cores, {platform.platform(terse=True)}, Python {platform.python_version()}, "
        f"torch {torch_version()}; {options.rounds} interleaved rounds of {options.seconds:g} s"
    )
    for name in asked.keys() - ways.keys():
        print(f"{name}: not run, {WAYS[name]['LD_PRELOAD']} is not installed")
    print(f"\n| training | {' | '.join(ways)} |\n|{' --- |' * (len(ways) + 1)}")
    for target, config in ((name, one) for name in options.only.split(",") for one in CELLS[name]):
        rates: dict[str, list[float]] = {name: [] for name in ways}
        peaks: dict[str, list[int]] = {name: [] for name in ways}
        for number in range(options.rounds):
            for name in ways if number % 2 == 0 else reversed(ways):
                rate, peak = trained(target, config, ways[name], options)
                rates[name].append(rate)
                peaks[name].append(peak)
        cells = [
            f"{interval([one / other for one, other in zip(rates[name], rates['glibc'], strict=True)])}, "
            f"{statistics.median(peaks[name]) / 2**20:,.0f} MiB"
            for name in ways
        ]
        said = ", ".join(f"{key} {value}" for key, value in config.items())
        print(f"| {target}, {said} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
