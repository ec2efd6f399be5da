"""The observed settings of a training run: the proof that they took effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Observed:
    """The settings that a session saw in its training. None: it could not be seen, or was not read."""

    micro_batch: int | None = None  # samples of most micro-batches
    guessed_from: tuple[int, ...] | None = None  # the shape that gave it; None: it is no guess
    micro_batches: int | None = None  # of most optimizer steps
    workers: int | None = None  # processes of the training loader
    threads: int | None = None  # that torch computes with on the CPU
    precisions: frozenset[str] | None = None  # dtypes below float32 of autocast and of parameters; empty: none
    recomputes: bool | None = None  # activations in the backward pass
    kept_activations: float | None = None  # the share that compiled graphs may keep
    channels_last: bool | None = None  # the weights of convolutions are in that memory format
    channels_last_inputs: bool | None = None  # the images that the model is given are
    switches: Mapping[str, bool] = field(default_factory=dict)  # torch's for the whole process, by knob; on or off
    attention: frozenset[str] | None = None  # the kernels that attention might use
    optimizer_implementation: str | None = None  # the setting of its optimizers: default, for-loop, foreach, fused
    # Options of the training loader, by DataLoader's names.
    prefetch_factor: int | None = None
    persistent_workers: bool | None = None
    pin_memory: bool | None = None
    malloc: str | None = None  # of the process: the knob's value, or that it is left alone
    expandable_segments: bool | None = None  # of CUDA's caching allocator
