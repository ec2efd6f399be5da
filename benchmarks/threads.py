"""What torch's threads and the loader's workers do to each other on a CPU, and what tuning them together is worth.

    python benchmarks/threads.py [--rounds 2] [--seconds 8]

JPEG tiles are decoded for a small CNN. Every configuration is probed once per round, in a fresh process, every other
round in reverse order. Then the default of somebody who added workers and the fastest configuration are run in a plain
loop that knows nothing of autotune, in turn, as often.
"""

import argparse
import math
import platform
import statistics
from pathlib import Path

from fidelity import ROOT, described, probed, trained

from autotune.core.records import Config
from autotune.knobs import defaults
from autotune.machine.environment import torch_version
from autotune.machine.host import cpu_name, usable_cores

TARGET = "benchmarks/targets/jpeg_cnn.py"
BATCH = {"batch_size": 32}


def configurations(cores: int) -> list[Config]:
    """No workers; then one, and as many as cores: with torch's own threads, with sleeping ones, with a single one."""
    ways: list[dict] = [{}, {"omp_wait_policy": "passive"}, {"num_threads": 1}]
    crowds = [{"num_workers": count, **way} for count in sorted({1, cores}) for way in ways]
    return [Config(values={**defaults(), **BATCH, **changes}) for changes in ({}, *crowds)]


def interleaved(configs: list[Config], rounds: int, measure) -> list[list]:
    """What `measure` gives for each configuration, once per round, every other round in reverse."""
    found: list[list] = [[] for _ in configs]
    for number in range(rounds):
        order = range(len(configs)) if number % 2 == 0 else reversed(range(len(configs)))
        for index in order:
            found[index].append(measure(configs[index]))
    return found


def rate(values: list[float]) -> float:
    """Geometric mean."""
    return math.exp(statistics.mean(math.log(value) for value in values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each plain loop")
    options = parser.parse_args()
    cores = usable_cores()
    print(
        f"{cpu_name()}, {cores} cores, {platform.platform(terse=True)}, Python {platform.python_version()}, "
        f"torch {torch_version()}; {Path(TARGET).stem}, {options.rounds} interleaved rounds\n"
    )
    configs = configurations(cores)
    probes = interleaved(configs, options.rounds, lambda config: probed(str(ROOT / TARGET), config))
    rates = [rate([measured.samples_per_second for measured in row]) for row in probes]
    print("| configuration | probes, samples/s | mean | of no workers | waits for data | slowed |")
    print("| --- | --- | --- | --- | --- | --- |")
    for config, row, mean in zip(configs, probes, rates, strict=True):
        shown = ", ".join(f"{measured.samples_per_second:,.0f}" for measured in row)
        wait = statistics.mean(measured.data_wait_share for measured in row)
        busy = sum(m.interference is not None and m.interference.is_noticeable for m in row)
        print(
            f"| {described(config)} | {shown} | {mean:,.0f} | {mean / rates[0]:.2f} | {wait:.0%} "
            f"| {busy} of {len(row)} |"
        )
    usual = next(c for c in configs if c["num_workers"] == cores)  # torch's own threads, a worker for every core
    best = configs[rates.index(max(rates))]
    plain = interleaved(
        [usual, best], options.rounds, lambda config: trained(str(ROOT / TARGET), config, options.seconds, 1)
    )
    print(f"\nplain loops of {options.seconds:.0f} s, in turn:")
    for name, config, row in zip(("usual", "best"), (usual, best), plain, strict=True):
        print(f"  {name:<6} {described(config):<50} {', '.join(f'{each:,.0f}' for each in row)} samples/s")
    print(f"  best / usual: {rate(plain[1]) / rate(plain[0]):.2f}")


if __name__ == "__main__":
    main()
