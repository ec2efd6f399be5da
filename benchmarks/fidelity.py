"""Does a probe's throughput tell that of a long run? Probes and plain training loops of the same configuration.

    python -m benchmarks.fidelity [--seconds 60] [--steps 1000] [--rounds 1]
    python -m benchmarks.fidelity --only slices --seconds 3 --rounds 9
    python -m benchmarks.fidelity --device cuda --catalogue resnet50,unet --seconds 5
    python -m benchmarks.fidelity --commands --seconds 20

With `--catalogue` the cells are those of GPU trainings: what is usual, and half precision with a large micro-batch and
workers; a target that lacks a package is named and not run. With `--commands` the cells are commands, and in the place
of the plain loop the same script is run as it is, and timed from outside by the lines that it prints.

For every cell a probe, a plain loop that knows nothing of autotune, and a probe again, each in a process of its own. A
plain loop takes at least so many seconds and so many optimizer steps. The mean of the two probes is compared, so that a
machine that drifts evenly favours neither. Last, of every two cells of a target that differ by more than 5 %, does the
probe put the same one first?
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from autotune.core.records import Config, Value
from autotune.core.requests import ProbeRequest
from autotune.core.results import Measurement
from autotune.knobs import defaults
from autotune.launch.subprocess import SubprocessLauncher
from autotune.machine.environment import torch_version, visible_gpus
from autotune.machine.host import cpu_name, usable_cores
from autotune.targets.commands.command import is_command
from autotune.targets.commands.recommended_command import recommended_command
from benchmarks.catalogue import SMALL, catalogue, missing
from benchmarks.surfaces.words import described

ROOT = Path(__file__).parent.parent
LOADER_BOUND = 0.15  # share of a step that waits, as in the product's own advice
APART = 0.05  # cells closer than this need not be ranked
Cells = dict[str, list[dict[str, Value]]]  # target -> what is not the default
CELLS: Cells = {
    "benchmarks/targets/resnet.py": [
        {"batch_size": 16},
        {"batch_size": 16, "channels_last": True},
        {"batch_size": 16, "amp_dtype": "bfloat16", "channels_last": True},
        {"batch_size": 16, "num_threads": 1},
    ],
    "examples/char_transformer.py": [
        {"batch_size": 8},
        {"batch_size": 8, "amp_dtype": "bfloat16"},
        {"batch_size": 2, "gradient_accumulation_steps": 4},
        {"batch_size": 8, "amp_dtype": "bfloat16", "num_threads": 1},
    ],
    "examples/slow_loader.py": [
        {"batch_size": 4},
        {"batch_size": 16, "num_workers": 2},
        {"batch_size": 32, "num_workers": 8},
    ],
    "benchmarks/targets/slices.py": [{"batch_size": 8, "num_threads": 1}],  # 0.1 ms a step
    "benchmarks/targets/tabular.py": [  # 0.3 and 1 ms; with more threads they would measure each other's waiting
        {"batch_size": 8, "num_threads": 1},
        {"batch_size": 128, "num_threads": 1},
    ],
    "benchmarks/targets/jpeg_cnn.py": [
        {"batch_size": 32},
        {"batch_size": 32, "num_workers": 1, "num_threads": 1},
        {"batch_size": 32, "num_workers": 2, "num_threads": 1},
        {"batch_size": 32, "num_workers": 1},
    ],
}

BARE = (
    "-- python benchmarks/same_model/bare.py --batch-size {batch_size=64} --accum {gradient_accumulation_steps=1} "
    "{bf16:flag=false} --workers {num_workers=0}"
)
ACCELERATED = (
    "-- python benchmarks/same_model/accelerated.py --batch-size {batch_size=64} --gradient-accumulation-steps "
    "{gradient_accumulation_steps=1} --mixed-precision {amp_dtype:accelerate=no} --num-workers {num_workers=0}"
)
_VARIED: list[dict[str, Value]] = [
    {"batch_size": 64},
    {"batch_size": 16, "gradient_accumulation_steps": 4},
    {"batch_size": 64, "amp_dtype": "bfloat16"},
    {"batch_size": 64, "num_workers": 1, "num_threads": 1},
    {"batch_size": 8, "num_threads": 1},
]
COMMANDS: Cells = {BARE: _VARIED, ACCELERATED: _VARIED}
LINES_APART = 10  # optimizer steps between two lines that these scripts print


class Died(Exception):
    """A probe or a plain loop, and of what."""


def of_catalogue(names: str, device: str, small: bool) -> Cells:
    """Two cells of each target that can run here; says of the others why they cannot."""
    cells: Cells = {}
    for task in catalogue(names, device=device, small=small):
        if why := missing(task.target):
            print(f"{task.name}: not run, {why}")
            continue
        workers = min(8, usable_cores())
        half: dict[str, Value] = {"amp_dtype": "bfloat16", "num_workers": workers}
        cells[task.target] = [{"batch_size": task.usual}, {"batch_size": task.global_batch // 4, **half}]
    return cells


def probed(target: str, config: Config, device: str) -> Measurement:
    with tempfile.TemporaryDirectory() as folder:
        result = SubprocessLauncher().run(ProbeRequest(target=target, config=config, device=device), Path(folder))
    if result.measurement is None:
        raise Died(f"probe: {result.outcome.value}, {result.failure.message if result.failure else 'no reason given'}")
    return result.measurement


def trained(target: str, config: Config, options: argparse.Namespace) -> float:
    loop, device = str(ROOT / "benchmarks/plain_loop.py"), options.device
    command = [
        sys.executable, loop, target, json.dumps(config.values), str(options.seconds), str(options.steps), "0", device,
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise Died(f"plain loop: {(ended.stderr.strip().splitlines() or [f'exit status {ended.returncode}'])[-1]}")
    return float(ended.stdout)


def timed(target: str, config: Config, options: argparse.Namespace) -> float:
    """Samples/s of a command that is run as it is, by the clock of whoever reads the lines that it prints."""
    command = recommended_command(target, config.values, defaults())
    assert command is not None
    words = [sys.executable, *command.words[1:]]
    began, first, last, steps = time.perf_counter(), 0.0, 0.0, 0
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **command.variables}
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            now = time.perf_counter()
            if not line.startswith("step "):
                continue
            if not first:
                first = now if now - began > options.seconds / 10 else 0.0
                continue
            last, steps = now, steps + LINES_APART
            if now - first > options.seconds and steps >= options.steps:
                break
        process.kill()
        process.stdout.close()
        errors.seek(0)
        said = errors.read().strip().splitlines()
    if not steps:
        raise Died(f"command: {(said or ['it printed no line'])[-1]}")
    return steps * config.global_batch_size() / (last - first)


def name_of(target: str) -> str:
    """A word for a table."""
    return target.split()[2].rpartition("/")[2] if is_command(target) else Path(target).stem


def cell(
    target: str, config: Config, options: argparse.Namespace
) -> tuple[float, list[float], float, int]:  # fmt: skip
    """Plain samples/s, the ratio of every round, and whether the probes were loader-bound or slowed by others."""
    rates, ratios, waits, slowed = [], [], [], 0
    for _ in range(options.rounds):
        before = probed(target, config, options.device)
        plain = (timed if is_command(target) else trained)(target, config, options)
        after = probed(target, config, options.device)
        rates.append(plain)
        ratios.append((before.samples_per_second + after.samples_per_second) / 2 / plain)
        waits += [before.data_wait_share, after.data_wait_share]
        slowed += sum(m.interference is not None and m.interference.is_noticeable for m in (before, after))
    return statistics.median(rates), ratios, statistics.mean(waits), slowed


def banner(options: argparse.Namespace) -> str:
    """Machine, versions and how long the plain loops are."""
    gpu = [gpu.name for gpu in visible_gpus()[:1] if options.device != "cpu"]
    return (
        f"{', '.join((*gpu, cpu_name()))}, {usable_cores()} cores, {platform.platform(terse=True)}, "
        f"Python {platform.python_version()}, torch {torch_version()}; plain loops of at least {options.seconds:.0f} s "
        f"and {options.steps} steps, "
        f"{options.rounds} rounds\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--catalogue", help="targets of benchmarks/catalogue instead, or all")
    parser.add_argument("--commands", action="store_true", help="commands, timed from outside, instead")
    parser.add_argument("--only", default="", help="targets whose path has this in it")
    parser.add_argument("--smoke", action="store_true", help="the catalogue's targets made tiny")
    options = parser.parse_args()
    if options.smoke:
        os.environ[SMALL] = "1"
    cells_of = of_catalogue(options.catalogue, options.device, options.smoke) if options.catalogue else CELLS
    if options.commands:
        cells_of = {
            target: cells for target, cells in COMMANDS.items() if "accel" not in target or find_spec("accelerate")
        }
    cells_of = {target: cells for target, cells in cells_of.items() if options.only in target}
    if not cells_of:
        sys.exit("no target of them can run here")
    print(banner(options))
    print("| target | configuration | plain samples/s | probe / plain | waits for data | probes slowed |")
    print("| --- | --- | --- | --- | --- | --- |")
    errors, overestimates, right, pairs = [], [], 0, 0
    for target, cells in cells_of.items():
        plain_rates, probe_rates = [], []
        for changes in cells:
            config = Config(values={**defaults(), **changes})
            try:
                plain, ratios, wait, slowed = cell(target, config, options)
            except Died as death:  # the other cells are worth their time
                print(f"| {name_of(target)} | {described(config.values)} | – | {death} | – | – |", flush=True)
                continue
            ratio = statistics.median(ratios)
            plain_rates.append(plain)
            probe_rates.append(plain * ratio)
            errors.append(abs(ratio - 1))
            overestimates += [ratio - 1] if wait > LOADER_BOUND else []
            shown = ", ".join(f"{each:.3f}" for each in ratios)
            print(
                f"| {name_of(target)} | {described(config.values)} | {plain:,.0f} | {shown} | {wait:.0%} "
                f"| {slowed} of {2 * options.rounds} |",
                flush=True,
            )
        for one, other in itertools.combinations(range(len(plain_rates)), 2):
            gap = plain_rates[one] / plain_rates[other] - 1
            if abs(gap) > APART:
                pairs += 1
                right += (gap > 0) == (probe_rates[one] > probe_rates[other])
    if not errors:
        sys.exit("every cell died")
    print(
        f"\nerror: median {statistics.median(errors):.1%}, p90 {np.quantile(errors, 0.9):.1%}, worst {max(errors):.1%};"
        f" largest overestimate of a loader-bound cell {max(overestimates, default=0):+.1%}; ranked as by the plain "
        f"loops: {right} of {pairs} pairs more than {APART:.0%} apart"
    )


if __name__ == "__main__":
    main()
