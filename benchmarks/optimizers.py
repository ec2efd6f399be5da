"""What foreach and fused updates of an optimizer are worth on a CPU: of the update alone, and of whole steps.

    python benchmarks/optimizers.py [--targets masked_lm small_bert] [--threads 1 2] [--no-updates]

Everything in one process, the implementations in turn, with the same weights and the same batch: after the first, all
numbers of a row are ratios of medians within it. `small_bert` needs transformers.
"""

import argparse
import importlib.util
import platform
import statistics
import time
from pathlib import Path

import torch

from autotune.knobs.optimizer_implementations import OPTIONS
from autotune.machine.environment import torch_version
from autotune.machine.host import cpu_name, usable_cores
from autotune.targets.optimizer_implementations import choose

TARGETS = Path(__file__).parent / "targets"
KINDS = {"AdamW": (torch.optim.AdamW, {}), "SGD, momentum": (torch.optim.SGD, {"momentum": 0.9})}
SIZES = ((200, 16), (100, 64), (50, 256), (8, 768))  # square matrices, with a vector each
ROUNDS, STEPS = 9, 2


def in_turn(ways: dict) -> list[float]:
    """Median seconds of each way, called in turn; the first round, which makes states, is left out."""
    seconds = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            began = time.perf_counter()
            for _ in range(STEPS):
                way()
            seconds[name].append((time.perf_counter() - began) / STEPS)
    return [statistics.median(each[1:]) for each in seconds.values()]


def update(kind, options, count, width):
    """The update of an optimizer of that many matrices and vectors."""
    shapes = [shape for _ in range(count) for shape in ((width, width), (width,))]
    parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    for one in parameters:
        one.grad = torch.randn_like(one)
    return kind(parameters, lr=1e-4, **options).step


def training(target, options):
    """A training step of a target on one batch."""
    torch.manual_seed(0)
    model = target.model().train()
    optimizer, data = target.optimizer(model.parameters()), target.dataset()
    batch = torch.utils.data.default_collate([data[i] for i in range(target.baseline["batch_size"])])
    choose([optimizer], options)

    def step():
        loss = target.loss(model, batch) if hasattr(target, "loss") else model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def row(*cells) -> None:
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def told(label, what, threads, ways) -> None:
    torch.set_num_threads(threads)
    loop, *others = in_turn(ways)
    row(label, what, threads, f"{1000 * loop:.1f}", *(f"{one / loop:.2f}" for one in others))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="*", default=["masked_lm", "small_bert"])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, usable_cores()])
    parser.add_argument("--no-updates", action="store_true")
    options = parser.parse_args()
    print(
        f"{cpu_name()}, {usable_cores()} cores, {platform.platform(terse=True)}, Python {platform.python_version()}, "
        f"torch {torch_version()}\n"
    )
    row("update or step", "parameters", "threads", "for-loop, ms", *list(OPTIONS)[1:])
    row(*["---"] * 6)
    for threads in options.threads:
        for label, (kind, asked) in KINDS.items() if not options.no_updates else ():
            for count, width in SIZES:
                ways = {name: update(kind, asked | way, count, width) for name, way in OPTIONS.items()}
                told(label, f"{2 * count}, width {width}", threads, ways)
        for name in options.targets:
            spec = importlib.util.spec_from_file_location(name, TARGETS / f"{name}.py")
            target = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(target)
            count = sum(1 for _ in target.model().parameters())
            told(f"step of {name}", count, threads, {one: training(target, way) for one, way in OPTIONS.items()})


if __name__ == "__main__":
    main()
