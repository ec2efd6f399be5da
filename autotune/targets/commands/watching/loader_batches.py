"""Counts the samples in the batches of a DataLoader, which says how many it cuts."""

from __future__ import annotations

from contextlib import suppress
from operator import length_hint
from typing import Any

from torch.utils.data import BatchSampler

from autotune.core.records import CheckLine
from autotune.errors import TargetError
from autotune.targets.batches import are_tensors, describe, first_dimension
from autotune.targets.counting import OwnBatches

OVERRIDE = "autotune.step(loss=loss, samples=...) after each step"


class LoaderBatches:
    """Counts the samples in each batch of a loader: their first dimension, unless the first batch shows another.

    Time steps, channels or nodes may come first. Where torch itself cut the first batch, and every part of it has the
    size of that cut, but not first, samples are counted by the dimensions of that size. Else a first dimension above it
    cannot be the samples', and one below it is doubtful: a collate function may drop or join samples. Not covered: as
    many time steps as samples in the first batch.
    """

    def __init__(self, sampler: Any) -> None:
        """`sampler` draws the indices of each batch."""
        self.cut = cut_of(sampler)
        self.check_line: CheckLine | None = None  # how samples are counted, if that is inferred
        self._is_torchs, self._size = type(sampler) is BatchSampler, self.cut  # samples of the first batch
        if self._is_torchs:
            with suppress(Exception):  # of a sampler of the user's
                self._size = min(sampler.batch_size, length_hint(sampler.sampler, sampler.batch_size))
        self._is_decided = self._is_cut = False
        self._by_dimension: OwnBatches | None = None

    def __call__(self, batch: Any) -> int:
        """Return the number of samples in `batch`."""
        if self._by_dimension is not None:
            with suppress(TargetError):  # the batch has another structure than the first
                return self._by_dimension(batch)
            return int(self._size or 1)
        first = _first_dimension(batch)
        if not self._is_decided:
            self._is_decided = True
            if self._size and first != self._size:
                self._decide(batch, first, self._size)
        return int((self._size if self._is_cut else first) or self._size or 1)

    def _decide(self, batch: Any, first: int | None, size: int) -> None:
        """Find out what samples are counted by, where the first dimension of the first batch is not `size`."""
        self._is_cut, by_dimension = first is None or first > size, OwnBatches("", size)
        with suppress(TargetError):
            by_dimension(batch)
            if self._is_torchs and by_dimension.fits_every_part:
                self._is_cut, self._by_dimension = True, by_dimension
                self._infer(by_dimension.explanation(batch))
        if not self._is_cut:
            self._infer(f"{first:,} in a batch, by dimension 0 of {describe(batch)}; unsure: its loader cuts {size:,}")

    def _infer(self, text: str) -> None:
        self.check_line = CheckLine(name="samples", text=text, inferred=True, override=OVERRIDE)


def cut_of(sampler: Any) -> int | None:
    """Return the samples of a batch, as the sampler of a loader says; None: it does not say."""
    cut = getattr(sampler, "batch_size", None)
    return cut if isinstance(cut, int) else None


def _first_dimension(batch: Any) -> int | None:
    """Return `first_dimension(batch)`, in a fifth of the time for a pair of equally long tensors, the usual batch."""
    if are_tensors(batch) and len(batch) == 2 and batch[0].dim() and batch[1].dim():
        one, other = len(batch[0]), len(batch[1])
        if one == other:
            return one
    return first_dimension(batch)
