"""The share of the tokens of batches that are padding: by their attention mask, else by the model's padding id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from autotune.targets.batches import tensors

MASKS = ("attention_mask", "padding_mask")  # keys of batches; 0 or False: a token that is not attended to
TOKEN_DIMENSIONS = 2  # dimensions: samples by tokens


class Padding:
    """Counts the tokens of batches, and those that are padding."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._id = _padding_id(model)
        self._tokens = self._padding = 0

    def note(self, batch: Any) -> None:
        """Count the tokens of one batch; waits for the device."""
        if (padded := self._padded(batch)) is not None:
            self._tokens += padded.numel()
            self._padding += int(padded.sum())

    @property
    def share(self) -> float | None:
        """Share of the tokens so far, 0..1; None without a batch that shows it."""
        return self._padding / self._tokens if self._tokens else None

    def _padded(self, batch: Any) -> torch.Tensor | None:
        """Return a mask that is True for padding, (samples, tokens); None: the batch does not show it."""
        if isinstance(batch, Mapping):
            mask = next((batch[key] for key in MASKS if key in batch), None)
            if isinstance(mask, torch.Tensor) and mask.dim() == TOKEN_DIMENSIONS and mask.numel():
                return mask == 0
        if self._id is None:
            return None
        found = (one for one in tensors(batch) if one.dim() == TOKEN_DIMENSIONS and one.numel() and _is_integral(one))
        return next((_at_the_ends(one == self._id) for one in found), None)


def _padding_id(model: torch.nn.Module) -> int | None:
    """Return the id that the configuration of a Hugging Face model names, or an embedding's `padding_idx`."""
    named = getattr(getattr(model, "config", None), "pad_token_id", None)
    indices = (one.padding_idx for one in model.modules() if isinstance(one, torch.nn.Embedding))
    return named if isinstance(named, int) else next((one for one in indices if one is not None), None)


def _is_integral(one: torch.Tensor) -> bool:
    return not one.is_floating_point() and not one.is_complex() and one.dtype is not torch.bool


def _at_the_ends(padded: torch.Tensor) -> torch.Tensor:
    """Leave out what is between tokens: there the id is a token, such as an end of text."""
    runs = padded.int()
    return (runs.cumprod(1) + runs.flip(1).cumprod(1).flip(1)) > 0
