"""What torch.compile is worth, and what it takes: targets plain and compiled, in turn, each in processes of its own.

    python benchmarks/compiling.py benchmarks/targets/resnet.py '{"batch_size": 64}' 4 default regional

prints for each mode the rate over that of the same configuration plain (geometric mean of as many rounds as asked, with
the lowest and the highest), the seconds of compiling cold (first probe, empty cache) and warm (median of the later
ones), what all of a first probe took, graphs, graph breaks, and the peak of memory over the plain one. Rates only mean
something beside those of the same run: compare ratios.
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path

from autotune.core.records import Config
from autotune.core.requests import ProbeRequest
from autotune.knobs import defaults
from autotune.launch.subprocess import SubprocessLauncher
from autotune.tuning.windows import SEARCH


def main(target: str, values: dict, rounds: int, modes: list[str]) -> None:
    contestants = [None, *modes]
    found = {mode: [] for mode in contestants}
    with tempfile.TemporaryDirectory(prefix="autotune-") as folder, SubprocessLauncher(isolation="fork") as launcher:
        for number in range(rounds * len(contestants)):
            turn, at = divmod(number, len(contestants))
            mode = contestants[at if turn % 2 == 0 else -1 - at]
            place = Path(folder) / "probes" / f"{number:04}"
            place.mkdir(parents=True)
            config = Config(values={**defaults(), **values, "compile_mode": mode})
            result = launcher.run(ProbeRequest(target=target, config=config, device="cpu", budget=SEARCH), place)
            if result.measurement is None:
                raise SystemExit(f"{mode}: {result.outcome}: {result.failure.message}")
            found[mode].append(result)
            seen = result.measurement.compilation
            print(
                f"{mode or 'plain'}: {result.measurement.samples_per_second:,.0f} samples/s, "
                f"{result.elapsed_seconds:.0f} s, compiling {seen.seconds if seen else 0:.1f} s",
                flush=True,
            )
    for mode in modes:
        print(told(mode, found[mode], found[None]), flush=True)


def told(mode: str, results: list, plain: list) -> str:
    rates = [one.measurement.samples_per_second for one in results]
    ratios = [rate / other.measurement.samples_per_second for rate, other in zip(rates, plain, strict=True)]
    seen = [one.measurement.compilation for one in results]
    warm = [one.seconds for one in seen[1:]]
    memory = statistics.median(one.measurement.memory.bytes for one in results) / statistics.median(
        one.measurement.memory.bytes for one in plain
    )
    return (
        f"{mode:<27} {statistics.geometric_mean(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})  cold "
        f"{seen[0].seconds:.0f} s, warm {statistics.median(warm):.1f} s, first probe "
        f"{results[0].elapsed_seconds:.0f} s (plain {plain[0].elapsed_seconds:.0f} s), {seen[0].graphs} graphs, "
        f"{seen[0].graph_breaks} breaks, memory {memory:.2f}x"
    )


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
