"""Memory of kernels that fake tensors do not show: a workspace kept until the backward pass, and scratch inside it.

Covered: oneDNN's LSTM and convolutions, which torch uses on the CPU. Without its workspace an LSTM was predicted to
need a fifth to a ninth of its real memory; without the scratch it was 13 % too low, a residual network 11 % (torch
2.13, measured 2026-11-21, `benchmarks/memory.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

SAMPLE_COUNTS = (2, 4)  # samples of the real calls: the line through them was within 0.6 % at 64
WORKSPACE_PLACE = 3  # place among the results: output, hidden state, cell state, workspace
OUTPUT_PLACE = 7  # place of the output sequence among the arguments of the backward pass
SCRATCH_TIMES = 5  # of its bytes: measured 4.5 to 5.6 times in float32 and 2.8 to 4 times in bfloat16 at 128 samples
# Dimensions of a convolution's tensors. Without channels_last the scratch was 1.0 to 1.5 times both tensors, in ten
# shapes and dtypes.
IMAGE_RANK = 4
TENSOR_COUNT = 7  # the first arguments: input, four weights, hidden state, cell state
BATCHED_PLACES = (0, 5, 6)  # those with a batch dimension: (steps, batch, features), (batch, hidden), (batch, hidden)


def _lstm(result: Sequence[Any], args: Sequence[Any]) -> Any:
    """Return the results of a fake call with a workspace of the size that a real call would have."""
    if not isinstance(args[0], FakeTensor):
        return result
    shapes = tuple(tuple(tensor.shape) for tensor in args[:TENSOR_COUNT])
    first, second = (_lstm_workspace_bytes(shapes, args[0].dtype, samples, tuple(map(_hashable, args[TENSOR_COUNT:])))
                     for samples in SAMPLE_COUNTS)  # fmt: skip
    size = first + (second - first) * (args[0].shape[1] - SAMPLE_COUNTS[0]) // (SAMPLE_COUNTS[1] - SAMPLE_COUNTS[0])
    workspace = result[WORKSPACE_PLACE].new_empty((max(0, size),), dtype=torch.uint8)
    return (*result[:WORKSPACE_PLACE], workspace, *result[WORKSPACE_PLACE + 1 :])


@cache
def _lstm_workspace_bytes(
    shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype, samples: int, rest: tuple[Any, ...]
) -> int:
    """Return the workspace of a real call with `samples` samples; `rest` are the arguments that are no tensors."""
    with _disable_current_modes():  # autograd is off: this runs below it
        tensors = [
            torch.zeros((*shape[:-2], samples, shape[-1]) if place in BATCHED_PLACES else shape, dtype=dtype)
            for place, shape in enumerate(shapes)
        ]
        arguments = [list(value) if isinstance(value, tuple) else value for value in rest]
        made = torch.ops.aten.mkldnn_rnn_layer.default(*tensors, *arguments)
    return int(made[WORKSPACE_PLACE].untyped_storage().nbytes())


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _lstm_scratch_bytes(args: Sequence[Any]) -> int:
    output = args[OUTPUT_PLACE]
    return SCRATCH_TIMES * int(output.numel()) * int(output.element_size())


def _convolution_scratch_bytes(args: Sequence[Any]) -> int:
    """Return the bytes of both tensors, which the kernel reorders unless they are channels_last."""
    gradient, given = args[:2]
    plain = given.device.type == "cpu" and given.dim() == IMAGE_RANK and given.is_contiguous()
    return sum(int(one.numel()) * int(one.element_size()) for one in (gradient, given)) if plain else 0


SCRATCH: dict[Any, Callable[[Sequence[Any]], int]] = {  # bytes needed while the operation runs, from its arguments
    torch.ops.aten.mkldnn_rnn_layer_backward.default: _lstm_scratch_bytes,
    torch.ops.aten.convolution_backward.default: _convolution_scratch_bytes,
}
WORKSPACES: dict[Any, Callable[[Any, Sequence[Any]], Any]] = {torch.ops.aten.mkldnn_rnn_layer.default: _lstm}
