"""Matrix products that take longer than slightly larger ones: vector units and tensor cores want multiples.

A weight of 50,257 rows may take longer than one of 50,304, of which the rest is never used. Each product of the forward
pass with such a weight is timed alone as it is and larger, in turn, with the two products of its backward pass. A still
larger one is timed in turn with the fastest so far.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from autotune.child import device as devices
from autotune.profile.measuring.comparison import agreed_share
from autotune.profile.measuring.user_lines import UserLine, calling_line, slow_line
from autotune.profile.records import SlowLine

# NVIDIA, "Matrix Multiplication Background User's Guide", "Tensor Core Requirements": 16-bit sizes in multiples of 8
# use tensor cores well, on an A100 those in multiples of 64.
SIZE_MULTIPLES = (8, 64)
LEAST_OPERATIONS_SHARE = 0.01  # of the operations of a step: what is less cannot be worth a hundredth of it
FEWEST_SIZE_ROUNDS, SIZE_ROUNDS = 6, 12  # as it is and larger; of fewer than 6, no interval says anything
MOST_PRODUCT_SECONDS = 1.0  # of products, for each size
MOST_SECONDS_IN_ALL = 10.0  # the products that take most come first
MOST_BYTES = 2**29  # of the tensors of one product: of a larger one so many rows are timed, and the rest like them
FEWEST_ROWS = 64  # a product of fewer is another one


class Product(NamedTuple):
    """`rows` x `inner` times `inner` x `columns`: samples or tokens by a weight."""

    rows: int
    inner: int
    columns: int
    dtype: torch.dtype
    is_transposed: bool = True  # the weight is stored as columns x inner, as that of a linear layer

    @property
    def flops(self) -> int:
        """The operations of the forward pass; the backward pass has twice as many."""
        return 2 * self.rows * self.inner * self.columns

    def most_rows(self, seconds: float) -> int:
        """Return how many rows are timed, where the whole takes so long: what memory and patience hold; 0: none."""
        weight, row = (size * self.dtype.itemsize for size in (self.inner * self.columns, self.inner + self.columns))
        patience = MOST_PRODUCT_SECONDS / (2 * SIZE_ROUNDS) / max(seconds, 1e-9)
        most = min(max(0, MOST_BYTES - weight) // row, int(patience * self.rows))
        return self.rows if most >= self.rows else most if most >= FEWEST_ROWS else 0

    def larger(self, multiple: int) -> Product:
        """Return the product with the sizes of the weight rounded up; the batch is the user's choice."""
        inner, columns = (-(-size // multiple) * multiple for size in (self.inner, self.columns))
        return self._replace(inner=inner, columns=columns)


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch 2.13
    """Counts the products with weights of the models in forward pass and loss, by line and size.

    `part` returns what is going on. Products of sparse tensors, and of two that are no weights, do not count: there a
    size is the batch's or the data's.
    """

    def __init__(self, models: Iterable[torch.nn.Module], part: Callable[[], str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # the same
        self._part = part
        self._weights = {tuple(one.shape) for model in models for one in model.parameters() if one.dim() == 2}
        self.counts = Counter[tuple[UserLine | None, Product]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do the operation, and note it if it is such a product."""
        if (at := _FACTORS.get(func)) is not None and self._part() == "forward":
            left, right = args[at], args[at + 1]
            if (product := self._product(left, right)) is not None:
                self.counts[calling_line(sys._getframe(1)), product] += 1
        return func(*args, **(kwargs or {}))

    def _product(self, left: Tensor, right: Tensor) -> Product | None:
        if left.layout is not torch.strided or right.layout is not torch.strided:
            return None
        shape, is_transposed = tuple(right.shape), right.stride(0) == 1
        if (shape[::-1] if is_transposed else shape) not in self._weights:
            return None
        return Product(left.shape[0], shape[0], shape[1], left.dtype, is_transposed)

    def slower_than_larger(self, flops: int, step_seconds: float, device: str) -> list[SlowLine]:
        """Return the lines whose products would take less time with a larger weight.

        `flops` and `step_seconds` are those of a whole step: of its rate follows how long a product takes.
        """
        found, known = list[SlowLine](), dict[Product, tuple[Product | None, float]]()
        ends = time.perf_counter() + MOST_SECONDS_IN_ALL
        for (line, product), count in sorted(self.counts.items(), key=lambda one: -one[1] * one[0][1].flops):
            if (
                product == product.larger(min(SIZE_MULTIPLES))
                or 3 * count * product.flops < LEAST_OPERATIONS_SHARE * flops
            ):
                continue
            if product not in known:
                if time.perf_counter() > ends:
                    continue
                known[product] = faster_larger(product, device, 3 * product.flops * step_seconds / flops)
            other, seconds = known[product]
            if other is not None:
                new, now = (f"{one.inner:,} × {one.columns:,}" for one in (other, product))
                what = f"a weight of {new} instead of {now}"
                found.append(slow_line("sizes", line, what, count, count * seconds))
        return found


_FACTORS = {torch.ops.aten.mm.default: 0, torch.ops.aten.addmm.default: 1}  # and where its two factors are


def faster_larger(product: Product, device: str, seconds: float) -> tuple[Product | None, float]:
    """Return the largest that is surely faster than all smaller ones, and by how many seconds; None, 0.0 if none is.

    `seconds`: what the product takes, about, with its backward pass.
    """
    best, gained = product, 0.0
    rows = product.larger(max(SIZE_MULTIPLES)).most_rows(seconds)
    for other in dict.fromkeys(map(product.larger, SIZE_MULTIPLES)) if rows else ():
        # The larger the weight, the more it has to show: it is held against the best of the smaller ones.
        timed = _in_turn(best._replace(rows=rows), other._replace(rows=rows), device)
        if share := agreed_share(timed):
            best, gained = other, gained + share * min(timed[::2]) * product.rows / rows
    return (best, gained) if gained else (None, 0.0)


def _in_turn(product: Product, other: Product, device: str) -> list[float]:
    works, seconds = [_training(one, device) for one in (product, other)], list[float]()
    for work in works:
        work()
    ends = time.perf_counter() + MOST_PRODUCT_SECONDS
    while len(seconds) < 2 * SIZE_ROUNDS and (len(seconds) < 2 * FEWEST_SIZE_ROUNDS or time.perf_counter() < ends):
        for work in works:
            devices.synchronize(device)
            began = time.perf_counter()
            work()
            devices.synchronize(device)
            seconds.append(time.perf_counter() - began)
    return seconds


def _training(product: Product, device: str) -> Callable[[], None]:
    """Return what does the product, with both of its backward pass."""
    rows, inner, columns, dtype, is_transposed = product
    own = torch.Generator(device).manual_seed(0)  # the training's goes on as if nothing were drawn here
    stored = (columns, inner) if is_transposed else (inner, columns)
    samples, kept, gradient = (
        torch.randn(size, device=device, generator=own).to(dtype) for size in ((rows, inner), stored, (rows, columns))
    )
    weight = kept.t() if is_transposed else kept

    def work() -> None:
        torch.mm(samples, weight)
        torch.mm(gradient, weight.t())
        torch.mm(*((gradient.t(), samples) if is_transposed else (samples.t(), gradient)))

    return work
