"""Dropout that draws the same masks in every dtype, so that paired runs differ by their precision alone.

A CPU draws them alike. CUDA's kernel takes more random numbers at once the smaller its values are, so that bfloat16
drops other places than float32: a healthy network "learned 5.5 % less" in half precision (H200, torch 2.11.0;
docs/notes/gpu.md 4).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional


@contextmanager
def paired_dropout(device: str) -> Iterator[None]:
    """Until the end, `torch.nn.functional.dropout` draws in float32 on an accelerator, and attention drops nothing.

    Each kernel of attention draws masks of its own, which nobody sees. Modules and code that look these two functions
    up in `torch.nn.functional`, or import them meanwhile, get them so. Not covered: dropout inside cuDNN's recurrent
    networks, and `torch.dropout` called by that name.
    """
    if device.partition(":")[0] == "cpu":
        yield
        return
    own, attention = functional.dropout, functional.scaled_dot_product_attention

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if not training or not 0.0 < p < 1.0:
            return own(input, p, training, inplace)
        kept = torch.rand(input.shape, device=input.device) >= p  # float32, whatever the input is
        return input.mul_(kept).div_(1 - p) if inplace else input * kept / (1 - p)

    def without_dropout(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *args: Any,
                        **more: Any) -> Any:  # fmt: skip
        return attention(query, key, value, attn_mask, 0.0, *args, **more)

    functional.dropout, functional.scaled_dot_product_attention = dropout, without_dropout
    try:
        yield
    finally:
        functional.dropout, functional.scaled_dot_product_attention = own, attention
