"""The bytes that optimizers keep between steps for given parameters, by their definitions.

    SGD           nothing
    momentum      one number for each parameter, in its dtype           Polyak 1964; torch.optim.SGD
    Adam, AdamW   two                                                   Kingma & Ba 2015; torch.optim.Adam
    Adafactor     of a matrix the second moments of rows and columns    Shazeer & Stern 2018; torch.optim.Adafactor
    8-bit Adam    two bytes, and two float32 for each block of 256      Dettmers et al. 2022; bitsandbytes 0.44

Adafactor factors the last two dimensions, and keeps all second moments of vectors; it has no first moments here, as
its authors and torch have it. 8-bit Adam keeps float32 for parameters of less than 4,096 numbers (bitsandbytes,
`min_8bit_size`; blocks are of 256 since 0.44, and had 2,048 in the paper). Left out are counters of steps, 4 bytes a
parameter tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

ParameterShape = tuple[int, ...]
SMALL, BLOCK = 4096, 256  # numbers: see above


def _factored(shape: ParameterShape, itemsize: int) -> int:
    if len(shape) < 2:
        return math.prod(shape) * itemsize
    *outer, rows, columns = shape
    return math.prod(outer) * (rows + columns) * itemsize


def _of_8_bits(shape: ParameterShape, itemsize: int) -> int:
    count = math.prod(shape)
    return 2 * (4 * count if count < SMALL else count + 4 * -(-count // BLOCK))


_STATES: Mapping[str, Callable[[ParameterShape, int], int]] = {
    "SGD": lambda shape, itemsize: 0,
    "momentum": lambda shape, itemsize: math.prod(shape) * itemsize,
    "Adam": lambda shape, itemsize: 2 * math.prod(shape) * itemsize,
    "Adafactor": _factored,
    "8-bit Adam": _of_8_bits,
}


def state_bytes(parameters: Sequence[tuple[ParameterShape, int]]) -> dict[str, int]:
    """Return the bytes by optimizer, for parameters of these shapes and bytes per number."""
    return {name: sum(of(shape, itemsize) for shape, itemsize in parameters) for name, of in _STATES.items()}
