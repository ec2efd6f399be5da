"""What malloc costs trainings on a CPU: CPU time and page faults of an optimizer step, by way of allocating.

    python benchmarks/malloc.py [--rounds 1] [--only resnet,tabular]

A way is a set of environment variables: a value of the knob `malloc`, and what else was tried. Each cell is
a fresh process, every other round in reverse order, in which one thread takes steps on batches that are there already:
its CPU time, unlike wall time, can be told on a machine that does other work, too. A library that is not installed is
left out, and said.
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
from pathlib import Path

from autotune.knobs.malloc import LIBRARIES, SETTINGS
from autotune.machine.environment import torch_version
from autotune.machine.host import cpu_name
from autotune.machine.mallocs import can_preload

HERE = Path(__file__).parent
CELLS = (  # target, micro-batch, steps
    ("resnet", 16, 20), ("resnet", 128, 4), ("tabular", 8192, 200), ("masked_lm", 16, 4), ("masked_lm", 64, 2),
)  # fmt: skip
WARM_UP = 3  # steps, and batches that are used in turn
AS_IT_IS = "as it is"
WAYS = {AS_IT_IS: {}, **SETTINGS, "jemalloc as it is": {"LD_PRELOAD": LIBRARIES["jemalloc"]}}


def stepped(target: str, size: int, steps: int) -> tuple[float, float]:
    """Seconds of CPU time and page faults of a step, in this process."""
    import torch

    torch.set_num_threads(1)
    spec = importlib.util.spec_from_file_location("target", HERE / f"targets/{target}.py")
    module = sys.modules["target"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.model().train()
    optimizer = module.optimizer(model.parameters())
    batches = iter(torch.utils.data.DataLoader(module.dataset(), size, shuffle=True, drop_last=True))
    held = [next(batches) for _ in range(WARM_UP)]
    for number in range(WARM_UP + steps):
        if number == WARM_UP:
            before = resource.getrusage(resource.RUSAGE_SELF)
        module.loss(model, held[number % WARM_UP]).backward()
        optimizer.step()
        optimizer.zero_grad()
    after = resource.getrusage(resource.RUSAGE_SELF)
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return seconds / steps, (after.ru_minflt - before.ru_minflt) / steps


def measured(cell: tuple[str, int, int], way: dict[str, str]) -> tuple[float, float]:
    """The same of a fresh process that allocates by `way`."""
    words = [sys.executable, __file__, "--one", json.dumps(cell)]
    ended = subprocess.run(words, env={**os.environ, **way}, stdout=subprocess.PIPE, text=True, check=True)
    seconds, faults = json.loads(ended.stdout)
    return seconds, faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="resnet,tabular,masked_lm", help="targets")
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
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for number in range(options.rounds):
            for name in ways if number % 2 == 0 else reversed(ways):
                found[name].append(measured(cell, ways[name]))
        seconds = {name: statistics.median(one for one, _ in row) for name, row in found.items()}
        said = [
            f"{1000 * seconds[name]:.1f} ms, {seconds[name] / seconds[AS_IT_IS]:.2f}, {found[name][-1][1]:,.0f} faults"
            for name in ways
        ]
        print(f"| {cell[0]}, batch {cell[1]} | {' | '.join(said)} |", flush=True)


if __name__ == "__main__":
    main()
