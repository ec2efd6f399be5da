"""Counts the tensors of one step, fake or real, by their category.

    forward ─► backward ─► optimizer        each storage is noted with the module that made it, and when it was freed
       └ freed only here ┘   activations    what the forward pass made and did not free itself
         └ param.grad ──────┘ gradients     known when the backward pass hands them over

The category of a storage is known only at the end, so the step is recorded and replayed to find its peak.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._pytree import tree_iter

import autotune
from autotune.core.memory_breakdown import (
    CATEGORIES,
    OUTSIDE,
    AllocationSite,
    BlockBytes,
    Breakdown,
    Category,
    ModuleBytes,
    sites_of,
)
from autotune.memory.tensor_tracker import Ledger
from autotune.targets.base import ShapeRunTraining
from autotune.targets.batches import tensors
from autotune.targets.checkpointing import blocks, checkpointable_blocks
from autotune.targets.live_modules import hook_calls, named_parts
from autotune.targets.tracebacks import is_users, line_of


class UserPlaces:
    """Finds the user's line that called an operation; knows whose code each file has, which takes microseconds."""

    def __init__(self) -> None:
        self._users: dict[str, bool] = {}

    def of(self, frame: FrameType | None) -> tuple[str, int] | None:
        """Return the file and number of the user's innermost line below `frame`; None: autotune called it."""
        while frame is not None and not frame.f_code.co_filename.startswith(_OURS):
            file = frame.f_code.co_filename
            if file not in self._users:
                self._users[file] = is_users(Path(file))
            if self._users[file]:
                return file, frame.f_lineno
            frame = frame.f_back
        return None


@dataclass(eq=False, slots=True)
class _Storage:
    size: int
    module: str
    phase: int  # in which it was made; even: a forward pass
    category: Category | None = None  # None: not known yet
    stays: bool = False  # it is the output of a block that is recomputed
    line: tuple[str, int] | None = None  # the user's file and line that made it; None: none did, or not asked for


class StepLedger(Ledger):  # type: ignore[no-untyped-call]  # of torch 2.13
    """A dispatch mode for one step, which knows the category of each storage."""

    def __init__(
        self,
        device: str,
        *,
        contents: bool = False,
        paused: Callable[[], bool] = lambda: False,
        preparing: Callable[[], bool] = lambda: False,
        at_peak: Callable[[], None] = lambda: None,
        lines: bool = False,
    ) -> None:
        """`paused`: what is made now belongs to loading, and is counted when it is a batch. `at_peak` hears of each.

        `preparing`: what is made now, by no module, is a batch. `lines`: the user's lines that make tensors are noted,
        too.
        """
        super().__init__(device, contents=contents)
        self._paused, self._preparing, self._tell_peak = paused, preparing, at_peak
        self._known: dict[int, _Storage] = {}  # storages that are alive, by key
        self._changes: list[tuple[_Storage, int]] = []  # in order: bytes more, bytes less
        self._running: list[str] = []  # modules, innermost last
        self._phase = 0
        self._kinds: dict[str, str] = {}
        self._blocks: list[str] = []
        self._state: Callable[[], Iterable[torch.Tensor]] = tuple
        self._notes_lines = lines
        self._frame: FrameType | None = None  # that called the operation which runs
        self._places = UserPlaces()

    @contextmanager
    def watched(
        self,
        models: Sequence[torch.nn.Module],
        optimizers: Iterable[torch.optim.Optimizer],
        kept: Iterable[torch.Tensor] = (),
    ) -> Iterator[None]:
        """Count one step of training `models`. `kept`: tensors besides their own that live as long as they do."""
        parts = named_parts(models)
        names = {module: name for name, module in parts.items()}
        self._kinds = {name: type(module).__name__ for name, module in parts.items()}
        self._blocks = [names[one] for model in models if checkpointable_blocks(model) for one in blocks(model)]
        parameters = {id(one): one for model in models for one in model.parameters()}.values()
        buffers = (one for model in models for one in model.buffers())
        self._state = lambda: (one for each in optimizers for one in tree_iter(dict(each.state)) if _is_tensor(one))
        self.note("parameters", (*parameters, *buffers, *kept))
        self.note("optimizer state", self._state())
        self.note("gradients", (one.grad for one in parameters if one.grad is not None))
        with ExitStack() as stack:
            for name, module in parts.items():
                stack.callback(hook_calls(module, self._begins(name), self._ends(name)))
            for one in parameters:
                if one.requires_grad:
                    hook: Any = one.register_post_accumulate_grad_hook
                    stack.callback(hook(self._arrived).remove)
            yield stack.enter_context(self)

    def note(self, category: Category, found: Iterable[torch.Tensor], *, whole: bool = True) -> None:
        """Set the category of these tensors. Without `whole` they may be views of larger storages."""
        for one in found:
            if one.layout is torch.strided:
                self.hold(one, None if whole else one.numel() * one.element_size())
                storage = self._known.get(one.untyped_storage()._cdata)
                if storage is not None and storage.category not in _LASTING:
                    storage.category = category

    def breakdown(self) -> Breakdown:
        """Return the bytes by category at the peak; to be called after the step."""
        self.note("optimizer state", self._state())
        for storage in self._known.values():
            self._settle(storage)
        alive = self._at_peak()
        categories = dict.fromkeys(CATEGORIES, 0)
        by_module: dict[str, int] = {}
        for one in alive:
            categories[one.category or "temporary"] += one.size
            if one.category == "activations":
                by_module[one.module] = by_module.get(one.module, 0) + one.size
        return Breakdown(
            categories=categories,
            modules=tuple(
                ModuleBytes(name=name, kind=self._kinds.get(name, ""), bytes=size) for name, size in by_module.items()
            ),
            blocks=tuple(
                BlockBytes(name=name, kind=self._kinds[name], bytes=_bytes_in(name, alive)) for name in self._blocks
            ),
            sites=_sites(alive) if self._notes_lines else (),
        )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and note the storages that it made."""
        if self._paused():
            return func(*args, **(kwargs or {}))
        # Within a backward pass gradients are off, except where blocks are recomputed, which is a forward pass.
        is_backward = torch._C._current_graph_task_id() != -1 and not torch.is_grad_enabled()
        if is_backward != bool(self._phase % 2):
            self._phase += 1
        self._frame = sys._getframe(1) if self._notes_lines else None
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        finally:
            self._frame = None

    def _make(self, key: int, size: int) -> None:
        super()._make(key, size)
        storage = _Storage(
            size, self._running[-1] if self._running else OUTSIDE, self._phase, line=self._places.of(self._frame)
        )
        if not self._running and self._preparing():
            storage.category = "batch"
        self._known[key] = storage
        self._changes.append((storage, size))
        if self.bytes == self.peak_bytes:
            self._tell_peak()

    def _free(self, key: int, size: int) -> None:
        super()._free(key, size)
        storage = self._known.pop(key)
        self._settle(storage)
        self._changes.append((storage, -size))

    def _use(self, size: int) -> None:
        """Count a kernel's buffers, which are no tensors: torch's allocators do not see them on a CPU; an estimate."""

    def _settle(self, storage: _Storage) -> None:
        if storage.category is None:
            outlived = not storage.phase % 2 and storage.phase != self._phase
            storage.category = "activations" if outlived else "temporary"

    def _at_peak(self) -> set[_Storage]:
        total = most = place = 0
        for number, (_, change) in enumerate(self._changes, 1):
            total += change
            if total > most:
                most, place = total, number
        alive = set[_Storage]()
        for storage, change in self._changes[:place]:
            (alive.add if change > 0 else alive.discard)(storage)
        return alive

    def _arrived(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self.note("gradients", (parameter.grad,))

    def _begins(self, name: str) -> Any:
        return lambda module, arguments, options: self._running.append(name)

    def _ends(self, name: str) -> Any:
        def ends(module: Any, arguments: Any, output: Any) -> None:
            if self._running[-1:] != [name]:  # it had begun before: it steps in its own forward pass
                return
            self._running.pop()
            if name in self._blocks:
                for one in tensors(output):
                    key = one.untyped_storage()._cdata if one.layout is torch.strided else 0
                    if key in self._known:
                        self._known[key].stays = True

        return ends


_OURS = str(Path(autotune.__file__).parent)
_LASTING = ("parameters", "optimizer state")


def _is_tensor(one: Any) -> bool:
    return isinstance(one, torch.Tensor)


def _sites(alive: Iterable[_Storage]) -> tuple[AllocationSite, ...]:
    return sites_of((line_of(*one.line) if one.line else "", one.size) for one in alive)


def _bytes_in(block: str, alive: set[_Storage]) -> int:
    return sum(
        one.size
        for one in alive
        if one.category == "activations" and not one.stays and f"{one.module}.".startswith(f"{block}.")
    )


def step_on_shapes(training: ShapeRunTraining, batch_size: int, device: str) -> Breakdown:
    """Take one more step on fake tensors, after those that made the optimizer's state; return its bytes at the peak."""
    ledger, loop = StepLedger(device, lines=True), training.training
    watching = ledger.watched([loop.model], loop.update.optimizers, training.tensors())
    training.step(batch_size, watching, lambda one: ledger.note("batch", (one,)))
    return ledger.breakdown()
