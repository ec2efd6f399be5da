"""Matrix products that take longer than slightly larger ones: vector units and tensor cores want multiples.

A weight of 50,257 rows may take longer than one of 50,304, of which the rest is never used. Each product of the forward
pass with such a size is timed alone as it is and larger, in turn, with the two products of its backward pass.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from autotune.child import device as devices
from autotune.profile.measuring.comparison import agreed_share
from autotune.profile.measuring.user_lines import UserLine, calling_line
from autotune.profile.records import SlowLine

# NVIDIA, "Matrix Multiplication Background User's Guide", "Tensor Core Requirements": 16-bit sizes in multiples of 8
# use tensor cores well, on an A100 those in multiples of 64.
MULTIPLES = (8, 64)
LEAST_SHARE = 0.01  # of the operations of a step: what is less cannot be worth a hundredth of it
ROUNDS = 12  # as it is and larger; of fewer than 6, no interval says anything
MOST_SECONDS = 1.0  # of products, for each size
MOST_BYTES = 2**29  # of the tensors of one product: of a larger one so many rows are timed, and the rest like them


class Product(NamedTuple):
    """`rows` x `inner` times `inner` x `columns`: samples or tokens by a weight."""

    rows: int
    inner: int
    columns: int
    dtype: torch.dtype

    @property
    def flops(self) -> int:
        """The operations of the forward pass."""
        return 2 * self.rows * self.inner * self.columns

    def rows_in(self, most_bytes: int) -> int:
        """Return how many rows samples, weight and gradient may have in so many bytes; 0: the weight alone has more."""
        weight, row = (size * self.dtype.itemsize for size in (self.inner * self.columns, self.inner + self.columns))
        return max(0, most_bytes - weight) // row

    def larger(self, multiple: int) -> Product:
        """Return the product with the sizes of the weight rounded up; the batch is the user's choice."""
        inner, columns = (-(-size // multiple) * multiple for size in (self.inner, self.columns))
        return self._replace(inner=inner, columns=columns)


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch 2.13
    """Counts the matrix products in forward pass and loss, by line and size; `part` returns what is going on."""

    def __init__(self, part: Callable[[], str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # the same
        self._part = part
        self.counts = Counter[tuple[UserLine, Product]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do the operation, and note it if it is such a product."""
        if (at := _FACTORS.get(func)) is not None and self._part() == "forward":
            left, right = args[at], args[at + 1]
            line = calling_line(sys._getframe(1), through_torch=True)
            if line is not None:
                self.counts[line, Product(left.shape[0], left.shape[1], right.shape[1], left.dtype)] += 1
        return func(*args, **(kwargs or {}))

    def slower_than_larger(self, flops: int, device: str) -> list[SlowLine]:
        """Return the lines whose products would take less time with a larger weight; `flops`: of a whole step.

        Three products in all, forward and backward, count for one in the forward pass.
        """
        found, known = list[SlowLine](), dict[Product, tuple[Product | None, float]]()
        for (line, product), count in self.counts.items():
            if product == product.larger(min(MULTIPLES)) or 3 * count * product.flops < LEAST_SHARE * flops:
                continue
            if product not in known:
                known[product] = faster_larger(product, device)
            other, seconds = known[product]
            if other is not None:
                new, now = (f"{one.inner:,} × {one.columns:,}" for one in (other, product))
                what = f"a weight of {new} instead of {now}"
                found.append(
                    SlowLine(
                        kind="sizes", place=line.place, code=line.text, what=what, count=count, seconds=count * seconds
                    )
                )
        return found


_FACTORS = {torch.ops.aten.mm.default: 0, torch.ops.aten.addmm.default: 1}  # and where its two factors are


def faster_larger(product: Product, device: str) -> tuple[Product | None, float]:
    """Return the larger product that gains most, and by how many seconds; None, 0.0 where none is surely faster."""
    best: tuple[Product | None, float] = (None, 0.0)
    rows = min(product.rows, product.larger(max(MULTIPLES)).rows_in(MOST_BYTES))
    for multiple in MULTIPLES if rows else ():
        other = product.larger(multiple)
        seconds = _in_turn(product._replace(rows=rows), other._replace(rows=rows), device)
        gained = agreed_share(seconds) * min(seconds[::2]) * product.rows / rows
        if gained > best[1]:
            best = other, gained
    return best


def _in_turn(product: Product, other: Product, device: str) -> list[float]:
    works, seconds = [_training(one, device) for one in (product, other)], list[float]()
    for work in works:
        work()
    ends = time.perf_counter() + MOST_SECONDS
    while len(seconds) < 2 * ROUNDS and (len(seconds) < 12 or time.perf_counter() < ends):
        for work in works:
            devices.synchronize(device)
            began = time.perf_counter()
            work()
            devices.synchronize(device)
            seconds.append(time.perf_counter() - began)
    return seconds


def _training(product: Product, device: str) -> Callable[[], None]:
    """Return what does the product as a linear layer does, with both of its backward pass."""
    rows, inner, columns, dtype = product
    own = torch.Generator(device).manual_seed(0)  # the training's goes on as if nothing were drawn here
    samples, weight, gradient = (
        torch.randn(size, device=device, generator=own).to(dtype)
        for size in ((rows, inner), (columns, inner), (rows, columns))
    )

    def work() -> None:
        torch.mm(samples, weight.t())
        torch.mm(gradient, weight)
        torch.mm(gradient.t(), samples)

    return work
