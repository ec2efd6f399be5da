"""Does the recommendation hold in a loop that autotune did not write? Baseline and best trained in turn, plainly.

python benchmarks/side_by_side.py studies/slow_loader [--seconds 20] [--rounds 3]
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import autotune
from autotune.machine.host import cpu_name, usable_cores

PLAIN_LOOP = Path(__file__).with_name("plain_loop.py")


def trained(target: str, values: dict, seconds: float) -> float:
    command = [sys.executable, str(PLAIN_LOOP), target, json.dumps(values), str(seconds)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    result = autotune.load_result(options.study)
    print(f"{result.target} on {cpu_name()}, {usable_cores()} cores, torch {result.environment.torch}")
    ratios = []
    for number in range(options.rounds):
        baseline = trained(result.target, result.baseline, options.seconds)
        best = trained(result.target, result.params, options.seconds)
        ratios.append(best / baseline)
        print(
            f"round {number + 1}: baseline {baseline:,.0f}, best {best:,.0f} samples/s, {ratios[-1]:.2f}×", flush=True
        )
    print(f"median {statistics.median(ratios):.2f}×; the search said {result.speedup or float('nan'):.2f}×")


if __name__ == "__main__":
    main()
