"""Does a probe's throughput tell that of a long run? Probes and plain training loops of the same configuration.

    python benchmarks/fidelity.py [--seconds 60] [--steps 1000] [--rounds 1]

For every cell a probe, a plain loop that knows nothing of autotune, and a probe again, each in a process of its own. A
plain loop takes at least so many seconds and so many optimizer steps. The mean of the two probes is compared, so that a
machine that drifts evenly favours neither. Last, of every two cells of a target that differ by more than 5 %, does the
probe put the same one first?
"""

import argparse
import itertools
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from autotune.environment import torch_version
from autotune.host import cpu_name, usable_cores
from autotune.knobs import KNOBS, defaults
from autotune.launch.subprocess import SubprocessLauncher
from autotune.records import Config
from autotune.requests import ProbeRequest

ROOT = Path(__file__).parent.parent
LOADER_BOUND = 0.15  # share of a step that waits, as in the product's own advice
APART = 0.05  # cells closer than this need not be ranked
CELLS = {
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
    "benchmarks/targets/jpeg_cnn.py": [
        {"batch_size": 32},
        {"batch_size": 32, "num_workers": 1, "num_threads": 1},
        {"batch_size": 32, "num_workers": 2, "num_threads": 1},
        {"batch_size": 32, "num_workers": 1},
    ],
}


def probed(target: str, config: Config):
    with tempfile.TemporaryDirectory() as folder:
        result = SubprocessLauncher().probe(ProbeRequest(target=target, config=config, device="cpu"), Path(folder))
    assert result.measurement is not None, result.failure
    return result.measurement


def trained(target: str, config: Config, seconds: float, steps: int) -> float:
    loop = str(ROOT / "benchmarks/plain_loop.py")
    command = [sys.executable, loop, target, json.dumps(config.values), str(seconds), str(steps)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def cell(target: str, config: Config, options: argparse.Namespace):
    """Plain samples/s, the ratio of every round, and whether the probes were loader-bound or contaminated."""
    rates, ratios, waits, contaminated = [], [], [], 0
    for _ in range(options.rounds):
        before = probed(target, config)
        plain = trained(target, config, options.seconds, options.steps)
        after = probed(target, config)
        rates.append(plain)
        ratios.append((before.samples_per_second + after.samples_per_second) / 2 / plain)
        waits += [before.data_wait_share, after.data_wait_share]
        contaminated += sum(m.contamination is not None and m.contamination.contaminated for m in (before, after))
    return statistics.median(rates), ratios, statistics.mean(waits), contaminated


def described(config: Config) -> str:
    """The settings that are not the defaults."""
    changed = [knob for knob in KNOBS if config[knob.name] != knob.default or knob.name == "batch_size"]
    return ", ".join(f"{knob.label} {knob.show(config[knob.name])}" for knob in changed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    print(
        f"{cpu_name()}, {usable_cores()} cores, {platform.platform(terse=True)}, Python {platform.python_version()}, "
        f"torch {torch_version()}; plain loops of at least {options.seconds:.0f} s and {options.steps} steps, "
        f"{options.rounds} rounds\n"
    )
    print("| target | configuration | plain samples/s | probe / plain | waits for data | probes contaminated |")
    print("| --- | --- | --- | --- | --- | --- |")
    errors, overestimates, right, pairs = [], [], 0, 0
    for target, cells in CELLS.items():
        plain_rates, probe_rates = [], []
        for changes in cells:
            config = Config(values={**defaults(), **changes})
            plain, ratios, wait, contaminated = cell(target, config, options)
            ratio = statistics.median(ratios)
            plain_rates.append(plain)
            probe_rates.append(plain * ratio)
            errors.append(abs(ratio - 1))
            overestimates += [ratio - 1] if wait > LOADER_BOUND else []
            shown = ", ".join(f"{each:.3f}" for each in ratios)
            print(
                f"| {Path(target).stem} | {described(config)} | {plain:,.0f} | {shown} | {wait:.0%} "
                f"| {contaminated} of {2 * options.rounds} |",
                flush=True,
            )
        for one, other in itertools.combinations(range(len(cells)), 2):
            gap = plain_rates[one] / plain_rates[other] - 1
            if abs(gap) > APART:
                pairs += 1
                right += (gap > 0) == (probe_rates[one] > probe_rates[other])
    print(
        f"\nerror: median {statistics.median(errors):.1%}, p90 {np.quantile(errors, 0.9):.1%}, worst {max(errors):.1%};"
        f" largest overestimate of a loader-bound cell {max(overestimates, default=0):+.1%}; ranked as by the plain "
        f"loops: {right} of {pairs} pairs more than {APART:.0%} apart"
    )


if __name__ == "__main__":
    main()
