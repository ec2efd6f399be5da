"""Do forked probes measure what fresh ones do? The same probes both ways in turn, and how they differ.

    python benchmarks/isolation.py [--rounds 5] [--targets examples/digits_cnn.py ...]      on a machine that is quiet

For each target and configuration: rate and peak memory of the forked probe against the fresh one, the median over
rounds; whether the losses are equal bit for bit; and the fixed cost of each, from being asked to the first step. Rates
are judged where glibc keeps freed memory, peaks where it does not: else luck decides how many pages of a step are new
(15 % of its time, benchmarks/malloc.py), and how much of what building freed is still there (a fifth of a peak).
"""

import argparse
import platform
import statistics
import tempfile
from pathlib import Path

from autotune.core.records import Config
from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.core.results import Measurement, ProbeResult
from autotune.knobs import defaults
from autotune.knobs.malloc import GLIBC
from autotune.launch.subprocess import SubprocessLauncher
from autotune.machine.environment import torch_version
from autotune.machine.host import cpu_name, usable_cores

ROOT = Path(__file__).parent.parent
TARGETS = (
    "benchmarks/targets/trivial.py", "benchmarks/targets/digits_mlp.py", "benchmarks/targets/tabular.py",
    "benchmarks/targets/jpeg_cnn.py", "benchmarks/targets/packed_cnn.py", "benchmarks/targets/resnet.py",
    "benchmarks/targets/denoiser.py", "benchmarks/targets/restorer.py", "benchmarks/targets/masked_lm.py",
    "benchmarks/targets/small_bert.py", "examples/digits_cnn.py", "examples/char_transformer.py",
    "examples/slow_loader.py",
)  # fmt: skip
CONFIGS = ({}, {"num_workers": 2}, {"malloc": GLIBC}, {"malloc": GLIBC, "num_workers": 2})
MOST_RATE, MOST_PEAK = 0.01, 0.02  # differences of medians that are accepted
FIXED = ("start", "load", "build")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--targets", nargs="+", default=TARGETS)
    options = parser.parse_args()
    print(
        f"{cpu_name()}, {usable_cores()} cores, {platform.platform(terse=True)}, Python {platform.python_version()}, "
        f"torch {torch_version()}; medians of {options.rounds} rounds, forked against fresh\n"
    )
    print("| target | configuration | rate | peak | losses | fixed, forked (s) | fixed, fresh (s) |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rates, peaks, same = list[float](), list[float](), True
    with SubprocessLauncher(isolation="fork") as fork:
        for target in options.targets:
            for values in CONFIGS:
                probe(fork, target, values)  # starts the fork server
                pairs = [(probe(fork, target, values), probe(FRESH, target, values)) for _ in range(options.rounds)]
                rate = statistics.median(of(a).samples_per_second / of(b).samples_per_second for a, b in pairs) - 1
                peak = statistics.median(of(a).memory.bytes / of(b).memory.bytes for a, b in pairs) - 1
                equal = all(have_equal_losses(of(a), of(b)) for a, b in pairs)
                same = same and equal
                (rates if "malloc" in values else peaks).append(rate if "malloc" in values else peak)
                words = ", ".join(f"{name}={value}" for name, value in values.items()) or "defaults"
                costs = " | ".join(f"{statistics.median(map(fixed, ways)):.2f}" for ways in zip(*pairs, strict=True))
                losses = "equal" if equal else "differ"
                print(f"| {Path(target).stem} | {words} | {rate:+.1%} | {peak:+.1%} | {losses} | {costs} |", flush=True)
    rate, peak = statistics.median(map(abs, rates)), max(map(abs, peaks))
    kept = rate <= MOST_RATE and peak <= MOST_PEAK and same
    judged = f"rates with malloc={GLIBC} differ by {rate:.1%} in the median, peaks without by {peak:.1%} at most"
    print(f"\n{judged}: {'kept' if kept else 'missed'}; with their signs, rates by {statistics.median(rates):+.1%}")
    return int(not kept)


FRESH = SubprocessLauncher()


def probe(launcher: SubprocessLauncher, target: str, values: dict[str, int | str]) -> ProbeResult:
    request = ProbeRequest(
        target=str(ROOT / target), config=Config(values=defaults() | values), device="cpu", budget=ProbeBudget()
    )
    with tempfile.TemporaryDirectory() as folder:
        result = launcher.run(request, Path(folder))
    assert result.isolation == ("fork" if launcher.fork_servers else "fresh"), result.isolation_reason
    return result


def of(result: ProbeResult) -> Measurement:
    assert result.measurement is not None, result.failure
    return result.measurement


def have_equal_losses(one: Measurement, other: Measurement) -> bool:
    """As far as both trained one step at a time: how many steps a window has depends on the clock."""
    count = min(len(one.warmup_seconds), len(other.warmup_seconds))
    return one.losses[:count] == other.losses[:count]


def fixed(result: ProbeResult) -> float:
    """Seconds from being asked to the first step."""
    first = of(result)
    return sum(result.phase_seconds[name] for name in FIXED) + first.first_batch_seconds + first.warmup_seconds[0]


if __name__ == "__main__":
    raise SystemExit(main())
