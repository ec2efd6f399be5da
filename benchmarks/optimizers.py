"""What foreach and fused updates of an optimizer are worth on a CPU: of the update alone, and of whole steps.

    python benchmarks/optimizers.py [--rounds 3] [--targets masked_lm small_bert]

First AdamW and SGD step over parameters of several sizes in one process, their implementations in turn. Then each
target is probed in fresh processes, as often with each implementation, every other round in reverse order. All numbers
but the first of a row are ratios within it. `small_bert` needs transformers.
"""

import argparse
import platform
import statistics
import time

import torch
from fidelity import ROOT, probed
from threads import interleaved, rate

from autotune.core.records import Config
from autotune.knobs import defaults
from autotune.knobs.update import OPTIONS
from autotune.machine.environment import torch_version
from autotune.machine.host import cpu_name, usable_cores

KINDS = {"AdamW": (torch.optim.AdamW, {}), "SGD, momentum": (torch.optim.SGD, {"momentum": 0.9})}
SIZES = ((200, 16), (100, 64), (50, 256), (8, 768))  # square matrices, with a vector each
ROUNDS, STEPS = 9, 2
BATCHES = {"masked_lm": 64, "small_bert": 16, "tabular": 64}


def made(kind, options, count, width):
    """An optimizer of that many matrices and vectors, with gradients."""
    shapes = [shape for _ in range(count) for shape in ((width, width), (width,))]
    parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    for one in parameters:
        one.grad = torch.randn_like(one)
    return kind(parameters, lr=1e-4, **options)


def updates(kind, options, count, width) -> dict[str, float]:
    """Median seconds of an update, by implementation."""
    ways = {name: made(kind, {**options, **asked}, count, width) for name, asked in OPTIONS.items()}
    seconds = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, optimizer in ways.items():
            began = time.perf_counter()
            for _ in range(STEPS):
                optimizer.step()
            seconds[name].append((time.perf_counter() - began) / STEPS)
    return {name: statistics.median(each[1:]) for name, each in seconds.items()}  # the first makes the state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--targets", nargs="*", default=["masked_lm", "small_bert"])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, usable_cores()])
    parser.add_argument("--no-updates", action="store_true")
    options = parser.parse_args()
    print(
        f"{cpu_name()}, {usable_cores()} cores, {platform.platform(terse=True)}, Python {platform.python_version()}, "
        f"torch {torch_version()}\n"
    )
    if not options.no_updates:
        print("| optimizer | parameters | threads | for-loop, ms | foreach | fused |")
        print("| --- | --- | --- | --- | --- | --- |")
        for threads in options.threads:
            torch.set_num_threads(threads)
            for label, (kind, asked) in KINDS.items():
                for count, width in SIZES:
                    found = updates(kind, asked, count, width)
                    loop, foreach, fused = found.values()
                    row = label, f"{2 * count}, width {width}", str(threads), f"{1000 * loop:.1f}"
                    print("|", " | ".join((*row, f"{foreach / loop:.2f}", f"{fused / loop:.2f}")), "|", flush=True)
        print()
    print("| target | threads | as it is, samples/s | foreach | fused |\n| --- | --- | --- | --- | --- |")
    for target in options.targets:
        for threads in options.threads:
            count = None if threads == usable_cores() else threads
            base = {**defaults(), "batch_size": BATCHES[target], "num_threads": count}
            configs = [Config(values={**base, "fused_optimizer": way}) for way in (None, "foreach", "fused")]
            place = str(ROOT / "benchmarks/targets" / f"{target}.py")
            rows = interleaved(configs, options.rounds, lambda config, place=place: probed(place, config, "cpu"))
            usual, *others = (rate([one.samples_per_second for one in row]) for row in rows)
            print(
                f"| {target} | {threads} | {usual:.0f} | " + " | ".join(f"{x / usual:.2f}" for x in others) + " |",
                flush=True,
            )


if __name__ == "__main__":
    main()
