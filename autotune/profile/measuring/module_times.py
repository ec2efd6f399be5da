"""The time of a step by module: hooks mark where each module's forward and backward pass begin and end.

    forward    hooks of the modules: what is between two marks belongs to the innermost module that runs
    backward   hooks of the tensors that they gave and were given: a gradient arrives at a module's output when its
               backward pass begins, and at its input when that is done

`register_full_backward_hook` would say the same, and raises for modules whose output is changed in place (ReLU). Not
told apart: what a module computes after the gradient of its input was needed, which counts for the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from autotune.child.clock import clock_for
from autotune.profile.measuring.stopwatch import Stopwatch
from autotune.profile.records import ModuleSeconds
from autotune.targets.batches import tensors
from autotune.targets.live_modules import class_name, hook_calls, named_parts

_NODE = "_autotune_node"  # attribute of a tensor that has a hook: the node of the graph that it was set at
OUTSIDE = "(loss)"  # time of forward and backward passes in no module


class ModuleTimes:
    """Hooks on every module of the models that train, and on others; measures from its making to `result`.

    `others`: further modules, such as a teacher or a loss. Each counts as a whole.
    """

    def __init__(
        self,
        models: Sequence[torch.nn.Module],
        stopwatch: Stopwatch,
        device: str,
        others: Sequence[torch.nn.Module] = (),
    ) -> None:
        self._stopwatch, self._clock = stopwatch, clock_for(device)
        self._modules = [*named_parts(models).items(), *((f"({class_name(one)})", one) for one in others)]
        self._kinds = {name: type(module).__name__ for name, module in self._modules if not name.startswith("(")}
        self._running: list[str] = []
        self._marked: list[tuple[str, str] | None] = []
        self._step_began = 0  # at which mark

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Set the hooks, and take them away."""
        unhook = [hook_calls(module, self._begins(name), self._ends(name)) for name, module in self._modules]
        self._stopwatch.listeners.append(self._part_changed)
        try:
            yield
        finally:
            self._stopwatch.listeners.remove(self._part_changed)
            for take_off in unhook:
                take_off()

    def step(self, *, counts: bool) -> None:
        """Note that a step ended; without `counts` its times are dropped."""
        if not counts:
            self._marked[self._step_began :] = [None] * (len(self._marked) - self._step_began)
        self._step_began = len(self._marked)

    def result(self, steps: int) -> tuple[ModuleSeconds, ...]:
        """Return the seconds per step of every module that took any; waits for the device."""
        self._mark(None)
        seconds: dict[str, dict[str, float]] = {}
        for label, interval in zip(self._marked, self._clock.intervals(), strict=False):
            if label is not None:
                of_module = seconds.setdefault(label[0], {})
                of_module[label[1]] = of_module.get(label[1], 0.0) + interval / steps
        return tuple(
            ModuleSeconds(
                name=name, kind=self._kinds.get(name, ""), forward=found.get("forward", 0.0),
                backward=found.get("backward", 0.0),
            )
            for name, found in seconds.items()
        )  # fmt: skip

    def _mark(self, label: tuple[str, str] | None) -> None:
        self._clock.mark()
        self._marked.append(label)

    def _mark_running(self) -> None:
        """Recomputed activations run forward within a backward pass, and count for it."""
        if (part := self._stopwatch.current) in ("forward", "backward"):
            self._mark((self._running[-1] if self._running else OUTSIDE, part))

    def _part_changed(self) -> None:
        part = self._stopwatch.current
        if part == "backward":
            self._mark((OUTSIDE, part))
        elif part == "forward":
            self._mark_running()
        else:
            self._mark(None)

    def _begins(self, name: str) -> Any:
        def begins(module: Any, arguments: Any, options: Any) -> None:
            if not self._stopwatch.is_here:  # a replica of DataParallel in a thread of its own
                return
            parent = self._running[-1] if self._running else OUTSIDE
            self._running.append(name)
            for tensor in tensors([arguments, options]):
                self._hook(tensor, parent)
            self._mark_running()

        return begins

    def _ends(self, name: str) -> Any:
        def ends(module: Any, arguments: Any, output: Any) -> None:
            if not self._stopwatch.is_here or self._running[-1:] != [name]:  # it had begun before these hooks
                return
            self._running.pop()
            for tensor in tensors(output):
                self._hook(tensor, name)
            self._mark_running()

        return ends

    def _hook(self, tensor: Tensor, name: str) -> None:
        """When the gradient of `tensor` is there, the backward pass of module `name` goes on."""
        if tensor.grad_fn is None or getattr(tensor, _NODE, None) is tensor.grad_fn:
            return  # no gradient; or the output of a module, whose own backward pass begins there
        setattr(tensor, _NODE, tensor.grad_fn)

        def arrived(gradient: Tensor) -> None:
            self._mark((name, "backward"))

        tensor.register_hook(arrived)  # type: ignore[no-untyped-call]  # torch does not say
