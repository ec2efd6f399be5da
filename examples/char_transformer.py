"""A small transformer that learns to continue Python source, byte by byte.

    autotune search examples/char_transformer.py --time-budget 2m

Its text is the standard library of the interpreter that runs it: about five megabytes, on every machine, in English and
Python. It declares no baseline, so the global batch is free, and batches are judged by samples of 128 bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

CONTEXT = 128  # bytes in a sample
BYTES = 256  # the vocabulary
WIDTH = 128
HEADS = 4
LAYERS = 4
HELD_OUT = 0.05  # of the text, from its end


class Text(Dataset[tuple[Tensor, Tensor]]):
    """Items are `CONTEXT` consecutive bytes and the same shifted by one, both int64 of shape (128,)."""

    def __init__(self, text: np.ndarray) -> None:
        self.text = text

    def __len__(self) -> int:
        return (len(self.text) - 1) // CONTEXT

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        window = self.text[index * CONTEXT : (index + 1) * CONTEXT + 1].astype(np.int64)
        return torch.from_numpy(window[:-1]), torch.from_numpy(window[1:])


class Block(nn.Module):
    """Attention to earlier positions, then a perceptron, each added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.perceptron_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries_keys_values, self.mix = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.perceptron = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, states: Tensor) -> Tensor:
        """From and to (batch, position, width)."""
        parts = self.queries_keys_values(self.attention_norm(states)).unflatten(-1, (3, HEADS, -1))
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)  # each (batch, head, position, width of a head)
        seen = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        states = states + self.mix(seen.transpose(1, 2).flatten(-2))
        return states + self.perceptron(self.perceptron_norm(states))


class Transformer(nn.Module):
    """Logits of shape (batch, position, byte) for the byte after each position."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.positions = nn.Embedding(BYTES, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, BYTES))

    def forward(self, text: Tensor) -> Tensor:
        """From (batch, position)."""
        places = torch.arange(text.shape[1], device=text.device)
        return self.head(self.blocks(self.bytes(text) + self.positions(places)))


def dataset() -> Text:
    text = _library()
    return Text(text[: int(len(text) * (1 - HELD_OUT))])


def validation() -> Text:
    text = _library()
    return Text(text[int(len(text) * (1 - HELD_OUT)) :])


def model() -> nn.Module:
    return Transformer()


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    text, following = batch
    return nn.functional.cross_entropy(model(text).flatten(0, 1), following.flatten())


def optimizer(params: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=1e-3, weight_decay=0.1)


def _library() -> np.ndarray:
    """The modules at the top of the standard library as one run of bytes, in the order of their names."""
    sources = sorted(Path(os.__file__).parent.glob("*.py"))
    return np.frombuffer(b"\n".join(source.read_bytes() for source in sources), dtype=np.uint8)
