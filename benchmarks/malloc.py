"""What malloc costs trainings on a CPU: time and page faults of an optimizer step, by way of allocating.

    python benchmarks/malloc.py [--rounds 6] [--only resnet,tabular] [--threads 1]

A way is a set of environment variables: a value of the knob `malloc`, and what else was tried. Each cell is
a fresh process, every other round in reverse order, which takes steps on batches that are there already. On a machine
that does other work `--threads 1` helps: CPU time of one thread can be told there, unlike wall time. `as it is` also
says what a page fault costs: by how much its median step is longer than with glibc that keeps memory, for each fault.
A library that is not installed is left out, and said.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from autotune.knobs.malloc import LIBRARIES, SETTINGS
from autotune.machine.environment import torch_version
from autotune.machine.host import cpu_name
from autotune.machine.mallocs import can_preload

HERE = Path(__file__).parent
CELLS = (  # target, micro-batch, steps
    ("resnet", 16, 60), ("resnet", 128, 8), ("tabular", 8192, 200), ("masked_lm", 16, 8), ("masked_lm", 64, 2),
    ("digits_cnn", 64, 60), ("char_transformer", 32, 8),
)  # fmt: skip
FEWEST_FAULTS = 500  # of a step: of fewer the difference says nothing
WARM_UP = 3  # steps, and batches that are used in turn
AS_IT_IS = "as it is"
WAYS = {AS_IT_IS: {}, **SETTINGS, "jemalloc as it is": {"LD_PRELOAD": LIBRARIES["jemalloc"]}}


class Process(NamedTuple):
    """What an optimizer step took in one process."""

    seconds: float  # by the clock
    cpu_seconds: float
    faults: float


def stepped(target: str, size: int, steps: int, threads: int) -> Process:
    """Take these steps in this process."""
    import torch

    if threads:
        torch.set_num_threads(threads)
    place = next(one for one in (HERE / f"targets/{target}.py", HERE.parent / f"examples/{target}.py") if one.is_file())
    spec = importlib.util.spec_from_file_location("target", place)
    module = sys.modules["target"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.model().train()
    optimizer = module.optimizer(model.parameters())
    batches = iter(torch.utils.data.DataLoader(module.dataset(), size, shuffle=True, drop_last=True))
    held = [next(batches) for _ in range(WARM_UP)]
    for number in range(WARM_UP + steps):
        if number == WARM_UP:
            before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        module.loss(model, held[number % WARM_UP]).backward()
        optimizer.step()
        optimizer.zero_grad()
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu_seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Process(seconds / steps, cpu_seconds / steps, (after.ru_minflt - before.ru_minflt) / steps)


def measured(cell: tuple[str, int, int], threads: int, way: dict[str, str]) -> Process:
    """The same of a fresh process that allocates by `way`."""
    words = [sys.executable, __file__, "--one", json.dumps((*cell, threads))]
    ended = subprocess.run(words, env={**os.environ, **way}, stdout=subprocess.PIPE, text=True, check=True)
    return Process(*json.loads(ended.stdout))


def shown(found: dict[str, list[Process]], name: str) -> str:
    """`14.6 ms (11.1 to 18.4), 1.00, 22.0 ms of CPU time, 140 to 4,926 faults of 1.3 us`."""
    rows, middle = found[name], {name: statistics.median(one.seconds for one in rows) for name, rows in found.items()}
    seconds, faults = sorted(one.seconds for one in rows), sorted(one.faults for one in rows)
    cpu = statistics.median(one.cpu_seconds for one in rows)
    spread = f"{1000 * middle[name]:.1f} ms ({1000 * seconds[0]:.1f} to {1000 * seconds[-1]:.1f})"
    each, kept = statistics.median(faults), middle.get("glibc")
    is_plain = name == AS_IT_IS and kept is not None and each >= FEWEST_FAULTS
    cost = f" of {1e6 * (middle[name] - kept) / each:.1f} us" if is_plain else ""
    counted = f"{faults[0]:,.0f} to {faults[-1]:,.0f} faults{cost}"
    return f"{spread}, {middle[name] / middle[AS_IT_IS]:.2f}, {1000 * cpu:.1f} ms of CPU time, {counted}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="resnet,tabular,masked_lm", help="targets")
    parser.add_argument("--threads", type=int, default=0, help="of torch; 0: as many as it takes")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(stepped(*json.loads(options.one))))
        return
    ways = {name: way for name, way in WAYS.items() if can_preload(way.get("LD_PRELOAD", "libc.so.6"))}
    print(f"{cpu_name()}, {os.confstr('CS_GNU_LIBC_VERSION')}, torch {torch_version()}; {options.rounds} rounds")
    for name in WAYS.keys() - ways.keys():
        print(f"{name}: not run, {WAYS[name]['LD_PRELOAD']} is not installed")
    print(f"\n| training | {' | '.join(ways)} |\n|{' --- |' * (len(ways) + 1)}")
    for cell in (one for one in CELLS if one[0] in options.only.split(",")):
        found: dict[str, list[Process]] = {name: [] for name in ways}
        for number in range(options.rounds):
            for name in ways if number % 2 == 0 else reversed(ways):
                found[name].append(measured(cell, options.threads, ways[name]))
        said = [shown(found, name) for name in ways]
        print(f"| {cell[0]}, batch {cell[1]} | {' | '.join(said)} |", flush=True)


if __name__ == "__main__":
    main()
