"""What the kernels of attention cost on a CPU, forward and backward, against torch's own choice.

    python benchmarks/attention.py

Calls of `scaled_dot_product_attention` in one process and one thread, the kernels in turn. Ratios are of medians within
a row.
"""

import platform
import statistics
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from autotune.machine.environment import torch_version
from autotune.machine.host import cpu_name, usable_cores

SHAPES = ((32, 2, 16, 16), (32, 4, 32, 16), (16, 4, 128, 32), (8, 8, 256, 64))  # batch, heads, tokens, width
KERNELS = {"flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}
ROUNDS, CALLS = 10, 3


def seconds_of(kernels: list[SDPBackend], tensors: list[torch.Tensor]) -> float:
    began = time.perf_counter()
    with sdpa_kernel(kernels):
        for _ in range(CALLS):
            scaled_dot_product_attention(*tensors).sum().backward()
    return (time.perf_counter() - began) / CALLS


def main() -> None:
    torch.set_num_threads(1)  # on a busy machine two threads mostly wait for one another
    print(
        f"{cpu_name()}, {usable_cores()} cores, one thread, {platform.platform(terse=True)}, "
        f"Python {platform.python_version()}, torch {torch_version()}\n"
    )
    print(
        "| batch, heads, tokens, width | dtype | torch's choice, ms | flash | math |\n| --- | --- | --- | --- | --- |"
    )
    for dtype in (torch.float32, torch.bfloat16):
        for shape in SHAPES:
            tensors = [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3)]
            ways = {"own": list(KERNELS.values()), **{name: [kernel] for name, kernel in KERNELS.items()}}
            seconds = {name: [] for name in ways}
            for _ in range(ROUNDS):
                for name, kernels in ways.items():
                    seconds[name].append(seconds_of(kernels, tensors))
            own, *others = (statistics.median(each[1:]) for each in seconds.values())
            print(
                f"| {shape} | {dtype} | {1000 * own:.2f} | " + " | ".join(f"{x / own:.2f}" for x in others) + " |",
                flush=True,
            )


if __name__ == "__main__":
    main()
