"""The plan: the complete list of places at which a knob may change a training run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

SHORT_CYCLE = 2  # micro-batches: one without a gradient before, and one that adds to it, which decides the peak


@dataclass(kw_only=True)
class Plan:
    """The set-up of one training run. It exists in the child only; knobs edit it in the order of the registry."""

    device: str
    setup: list[Callable[[], None]] = field(default_factory=list)  # process-wide switches, before the model exists
    model_transforms: list[Callable[[Any], Any]] = field(default_factory=list)  # after the model is on the device
    batch_transforms: list[Callable[[Any], Any]] = field(default_factory=list)  # on each tensor, on the device
    forward_contexts: list[Callable[[], AbstractContextManager[Any]]] = field(default_factory=list)  # forward and loss
    loader_options: dict[str, Any] = field(default_factory=dict)  # keyword arguments of the DataLoader
    loader_asked: set[str] = field(default_factory=set)  # the options that a knob sets, not defaults
    optimizer_options: dict[str, Any] = field(default_factory=dict)  # of an optimizer that has them; {}: as it is made
    strategy: str | None = None  # by which several ranks train one model; None: torch's usual one
    parallel_options: dict[str, Any] = field(default_factory=dict)  # keyword arguments of DistributedDataParallel
    accumulation_steps: int = 1
    short_cycles: bool = False  # a loop of ours takes an optimizer step after two micro-batches (decisions/0046)
    scale_loss: bool = False  # float16 needs a gradient scaler
    compiles: bool = False  # torch.compile has work to do
    settable: tuple[str, ...] | None = None  # the knobs that may be set in what was not written to be tuned; None: all

    def ask_loader(self, option: str, value: Any) -> None:
        """Set an option of the DataLoader for a knob, and note that a knob set it."""
        self.loader_options[option] = value
        self.loader_asked.add(option)

    @property
    def micro_batches_per_step(self) -> int:
        """Micro-batches that are run per optimizer step; losses are still divided by `accumulation_steps`."""
        return min(self.accumulation_steps, SHORT_CYCLE) if self.short_cycles else self.accumulation_steps

    @property
    def loader_workers(self) -> int:
        """The number of processes that load batches; 0: the training process loads."""
        return int(self.loader_options["num_workers"])

    @property
    def prefetched_batches(self) -> int:
        """The number of batches that all workers together prepare ahead."""
        return self.loader_workers * int(self.loader_options.get("prefetch_factor", 0))
