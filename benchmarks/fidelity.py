"""Does a probe's throughput tell that of a long run? Probes and plain loops of the same configuration, interleaved.

    python benchmarks/fidelity.py [--seconds 60] [--rounds 2]

Each cell is measured in fresh processes, probe and plain loop in turn; the table shows the median ratio over rounds.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from autotune.host import cpu_name, usable_cores
from autotune.launch.subprocess import SubprocessLauncher
from autotune.records import Config, ProbeRequest

ROOT = Path(__file__).parent.parent
NAMES = ("batch_size", "gradient_accumulation_steps", "amp_dtype", "num_workers", "channels_last")
CELLS = {
    "examples/digits_cnn.py": [
        (8, 8, None, 0, False),
        (64, 1, None, 0, False),
        (64, 1, "bfloat16", 0, True),
    ],
    "examples/char_transformer.py": [(16, 1, None, 0, False), (64, 1, "bfloat16", 1, False)],
    "examples/slow_loader.py": [(32, 1, None, 0, False), (32, 1, None, 2, False), (32, 1, None, 8, False)],
}  # fmt: skip


def probed(target: str, config: Config) -> float:
    with tempfile.TemporaryDirectory() as folder:
        result = SubprocessLauncher().probe(ProbeRequest(target=target, config=config, device="cpu"), Path(folder))
    assert result.measurement is not None, result.failure
    return result.measurement.samples_per_second


def trained(target: str, config: Config, seconds: float) -> float:
    command = [sys.executable, str(ROOT / "benchmarks/plain_loop.py"), target, json.dumps(config.values), str(seconds)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    print(f"{cpu_name()}, {usable_cores()} cores, {platform.platform(terse=True)}, Python {platform.python_version()}")
    print(f"plain loops of {options.seconds:.0f} s, {options.rounds} rounds\n")
    print("| target | batch×accum dtype workers layout | plain samples/s | probe / plain, by round | median |")
    print("| --- | --- | --- | --- | --- |")
    ratios = []
    for target, cells in CELLS.items():
        for values in cells:
            config = Config(values=dict(zip(NAMES, values, strict=True)))
            pairs = [(probed(target, config), trained(target, config, options.seconds)) for _ in range(options.rounds)]
            each = [probe / plain for probe, plain in pairs]
            ratios.append(statistics.median(each))
            plain = statistics.median(plain for _, plain in pairs)
            batch, accum, dtype, workers, layout = values
            name = f"{batch}×{accum} {dtype or 'float32'} {workers} {'nhwc' if layout else 'nchw'}"
            shown = ", ".join(f"{ratio:.3f}" for ratio in each)
            print(f"| {Path(target).stem} | {name} | {plain:,.0f} | {shown} | {ratios[-1]:.3f} |", flush=True)
    errors = sorted(abs(ratio - 1) for ratio in ratios)
    print(f"\nmedian error {statistics.median(errors):.1%}, worst {errors[-1]:.1%}")


if __name__ == "__main__":
    main()
