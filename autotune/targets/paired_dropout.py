"""Dropout that draws the same masks in every dtype, so that paired runs differ by their precision alone.

On a CPU all dtypes draw equal masks. CUDA's kernel uses more random numbers at once for smaller values, so that
bfloat16 drops other places than float32: a healthy network "learned 5.5 % less" in half precision (H200, torch 2.11.0;
docs/notes/gpu.md 4).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


@contextmanager
def paired_dropout(device: str) -> Iterator[None]:
    """Until the end, `torch.nn.functional.dropout` draws in float32 on an accelerator, and attention drops nothing.

    Each attention kernel draws its own masks, which cannot be seen. The replacements reach modules and code that look
    these two functions up in `torch.nn.functional`, or import them meanwhile. Not covered: what is scripted, dropout
    inside cuDNN's recurrent networks, `torch.dropout` called by that name, and nested tensors.
    """
    if device.partition(":")[0] == "cpu":
        yield
        return
    own, attention, script = functional.dropout, functional.scaled_dot_product_attention, torch.jit.script

    def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or not 0.0 < p < 1.0 or input.is_nested:
            return own(input, p, training, inplace)
        kept = torch.rand(input.shape, device=input.device) >= p  # float32, whatever the input is
        return input.mul_(kept).div_(1 - p) if inplace else input * kept / (1 - p)

    def without_dropout(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        *arguments: Any, **options: Any,
    ) -> Tensor:  # fmt: skip
        return attention(query, key, value, attn_mask, 0.0, *arguments, **options)

    def scripted(*arguments: Any, **options: Any) -> Any:  # compiles only torch's own functions
        now = functional.dropout, functional.scaled_dot_product_attention  # not torch's: nested use
        _set(own, attention)
        try:
            return script(*arguments, **options)
        finally:
            _set(*now)

    _set(dropout, without_dropout)
    torch.jit.script = scripted
    try:
        yield
    finally:
        _set(own, attention)
        torch.jit.script = script


def _set(dropout: Any, attention: Any) -> None:
    functional.dropout, functional.scaled_dot_product_attention = dropout, attention
