"""The calls of the user's code that make the host wait, copy, write or clean up, each with its line and its time.

Functions are replaced while steps are watched: where they are defined, and in the user's modules that imported them by
name (`from copy import deepcopy`). The user's hooks are replaced in the modules and parameters that call them.
"""

from __future__ import annotations

import builtins
import copy
import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, distributed
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from autotune.child.full_collections import is_pythons
from autotune.profile.measuring.communication import COLLECTIVES, WAITS, who_waits
from autotune.profile.measuring.core_time import Spent, ThreadMoment, moment, spent
from autotune.profile.measuring.stopwatch import Stopwatch, freeing_seconds, replaced
from autotune.profile.measuring.user_lines import UserLine, calling_line, is_optimizers, known_as, line_of, slow_line
from autotune.profile.records import SlowLine, Slowness
from autotune.targets.live_modules import class_name
from autotune.targets.own_step import StepOptimizer

_READS = ("item", "tolist", "cpu", "numpy", "__float__", "__int__", "__bool__", "__index__")
_SHOWN = {"__float__": "float(tensor)", "__int__": "int(tensor)", "__bool__": "bool(tensor)", "__index__": "an index"}
WatchedCall = tuple[Any, str, Slowness, str]  # owner, name, kind, and name that is shown
CALLS: tuple[WatchedCall, ...] = (
    *((Tensor, name, "host read", _SHOWN.get(name, f".{name}()")) for name in _READS),
    *((torch, name, "host tensor", f"torch.{name}()") for name in ("tensor", "as_tensor", "from_numpy")),
    (gc, "collect", "collector", "gc.collect()"),
    (torch.cuda, "empty_cache", "cache", "torch.cuda.empty_cache()"),
    (torch.cuda, "synchronize", "cache", "torch.cuda.synchronize()"),
    (torch, "save", "saving", "torch.save()"),
    (builtins, "print", "printing", "print()"),
    (Tensor, "__repr__", "printing", "a tensor that is shown"),
    (copy, "deepcopy", "copying", "copy.deepcopy()"),
    (StepOptimizer, "zero_grad", "zeroing", "zero_grad(set_to_none=False)"),
    (torch.nn.Module, "zero_grad", "zeroing", "zero_grad(set_to_none=False)"),
    *((distributed, name, "collective", f"torch.distributed.{name}()") for name in COLLECTIVES),
    *((kind, name, "collective", ".wait() of an asynchronous exchange") for kind, name in WAITS),
)
# On an accelerator: the number of resulting values is known only when they are computed, and the host waits for that;
# it also waits while memory is page-locked.
SELECTIONS: tuple[WatchedCall, ...] = (
    *((owner, "nonzero", "host read", "nonzero()") for owner in (torch, Tensor)),
    *((owner, "masked_select", "host read", "masked_select()") for owner in (torch, Tensor)),
    *((owner, "unique", "host read", "unique()") for owner in (torch, Tensor)),
    (Tensor, "__getitem__", "host read", "a boolean mask"),
    (torch, "where", "host read", "torch.where(condition)"),
    (Tensor, Tensor.pin_memory.__name__, "pinning", ".pin_memory()"),  # not the knob of that name
)
_VALUES = ("host read", "host tensor")
_METRICS = ("Metric", "MetricCollection")
_MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_PARAMETER_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
LONG_LIST_SECONDS = 0.001  # of making a list: for longer ones the time of freeing is measured, too


def metrics() -> list[WatchedCall]:
    """Return the metrics of torchmetrics, if it was imported."""
    library = sys.modules.get("torchmetrics")
    return [(getattr(library, name), "forward", "metric", "a metric") for name in _METRICS if library is not None]


@dataclass
class _Seen:
    kind: Slowness
    what: str
    count: int = 0
    busy: float = 0.0  # seconds
    idle: float = 0.0


class Calls:
    """Counts and times the calls that make the host wait, copy, write or clean up, by the user's line."""

    def __init__(
        self, models: Sequence[torch.nn.Module], stopwatch: Stopwatch, device: str,
        calls: tuple[WatchedCall, ...] = CALLS, *, feed_each_other: bool = False,
    ) -> None:  # fmt: skip
        """`models` train. `feed_each_other`: what one computes without gradients, another may train on, as in a GAN."""
        self._models, self._stopwatch = models, stopwatch
        self._evaluated = set[int]() if feed_each_other else {id(one) for one in models}
        self._trained = {id(one) for model in models for one in model.modules()}
        self._watched = (*calls, *metrics(), *(() if device == "cpu" else SELECTIONS))
        self._seen: dict[tuple[UserLine, str], _Seen] = {}
        self._of_step = list[tuple[UserLine, Slowness, str, Spent]]()
        self._evaluation: tuple[torch.nn.Module, UserLine, ThreadMoment] | None = None  # of what, where, since when
        self.is_inside = False  # a call that is counted
        self._collections = Counter[bool]()  # full ones of Python's own, by whether such a call brought them about
        self.sets_to_none = False  # ignore the user's argument of zero_grad
        self.after: Callable[[], None] = lambda: None  # called at the end of each watched call

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Replace the watched functions by ones that count and time them by line, until the `with` block ends."""
        with ExitStack() as stack:
            for owner, name, kind, what in self._watched:
                call = getattr(owner, name)
                watching = self._watching(call, kind, what)
                stack.enter_context(replaced(owner, name, watching))
                for module, known in known_as(call) if isinstance(owner, ModuleType) else ():
                    stack.enter_context(replaced(module, known, watching))
            for model in self._models:
                for hooks, key, hook, line in hooks_of_users(model):
                    hooks[key] = self._watching(hook, "hook", line.function, line)
                    stack.callback(hooks.__setitem__, key, hook)
            # The model's call is not replaced: operations inside would then be called from our code. A copy would keep
            # its hooks.
            stack.callback(register_module_forward_pre_hook(self._evaluation_begins).remove)
            stack.callback(register_module_forward_hook(self._evaluation_ends).remove)
            gc.callbacks.append(self._collecting)
            stack.callback(self._collects_no_more)
            yield

    def step(self, *, counts: bool) -> None:
        """One optimizer step has ended; without `counts` its calls are no step's, but an evaluation's."""
        for line, kind, what, took in self._of_step if counts else ():
            seen = self._seen.setdefault((line, what), _Seen(kind, what))
            seen.count, seen.busy, seen.idle = seen.count + 1, seen.busy + took.busy, seen.idle + took.idle
        self._of_step.clear()

    @property
    def collections_outside(self) -> float:
        """The share of Python's own full garbage collections that no call which is counted brought about, 0..1."""
        return self._collections[False] / self._collections.total() if self._collections else 1.0

    def result(self, steps: int, stretch: float) -> list[SlowLine]:
        """Return the slow lines of the calls in `steps` steps, which others made longer by the factor `stretch`."""
        return [
            slow_line(one.kind, line, one.what, one.count / steps, Spent(one.busy, one.idle).stretched(stretch) / steps)
            for (line, _), one in self._seen.items()
        ]

    def _watching(
        self, call: Callable[..., Any], kind: Slowness, what: str, always: UserLine | None = None
    ) -> Callable[..., Any]:
        """Return a function that calls `call`, and counts it for the calling line, or if that is given for `always`."""

        def watching(*arguments: Any, **options: Any) -> Any:
            if kind == "zeroing" and self.sets_to_none and not _sets_to_none(arguments, options):
                return call(arguments[0])
            # Calls while a sample is made are not counted: their time is that of loading.
            is_elsewhere = self.is_inside or not self._stopwatch.is_here or self._stopwatch.current == "data"
            if is_elsewhere or not _counts(what, arguments, options):
                return call(*arguments, **options)
            if kind == "collective" and who_waits(sys._getframe(1), options) != "user":
                return call(*arguments, **options)
            # What AdamW reads of its own counts of steps no line of the user's can leave out.
            if kind in _VALUES and is_optimizers(sys._getframe(1)):
                return call(*arguments, **options)
            line = always or calling_line(sys._getframe(1))
            if line is None:
                return call(*arguments, **options)
            self.is_inside, began = True, moment()
            try:
                return call(*arguments, **options)
            finally:
                took = spent(began, moment())
                if what == ".tolist()" and took.busy > LONG_LIST_SECONDS:
                    took = Spent(took.busy + freeing_seconds(partial(call, *arguments, **options)), took.idle)
                self._note(line, kind, what, took)

        return watching

    def _collecting(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and info["generation"] == 2 and is_pythons():
            self._collections[self.is_inside] += 1

    def _collects_no_more(self) -> None:
        with suppress(ValueError):  # the user's code may have emptied the list
            gc.callbacks.remove(self._collecting)

    def _note(self, line: UserLine, kind: Slowness, what: str, took: Spent) -> None:
        self.is_inside = False
        self._of_step.append((line, kind, what, took))
        self.after()

    def _evaluation_begins(self, model: torch.nn.Module, inputs: Any) -> None:
        """Where a whole model is called without gradients, everything within counts for that line."""
        if self.is_inside or torch.is_grad_enabled() or not self._stopwatch.is_here:
            return
        if id(model) not in self._evaluated and not self._is_teacher(model):
            return
        line = calling_line(sys._getframe(1))
        if line is not None and self._stopwatch.current != "data":
            self.is_inside, self._evaluation = True, (model, line, moment())

    def _is_teacher(self, model: torch.nn.Module) -> bool:
        """Return whether it has weights that do not train, and is no metric."""
        weights, are_theirs = list(model.parameters()), id(model) in self._trained
        trains = are_theirs and any(one.requires_grad for one in weights)
        return bool(weights) and not trains and not isinstance(model, tuple(owner for owner, *_ in metrics()))

    def _evaluation_ends(self, model: torch.nn.Module, inputs: Any, outputs: Any) -> None:
        if self._evaluation is not None and self._evaluation[0] is model:
            _, line, began = self._evaluation
            self._evaluation = None
            if id(model) in self._evaluated:
                self._note(line, "evaluating", "the model", spent(began, moment()))
            else:
                self._note(line, "teacher", class_name(model), spent(began, moment()))


def _counts(what: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Return whether a call with these arguments is to be counted."""
    if what.startswith("zero_grad("):
        return not _sets_to_none(arguments, options)
    if what == "a boolean mask":
        index = arguments[1] if isinstance(arguments[1], tuple) else (arguments[1],)
        return any(isinstance(one, Tensor) and one.dtype is torch.bool for one in index)
    return what != "torch.where(condition)" or len(arguments) + len(options) == 1


def hooks_of_users(model: torch.nn.Module) -> list[tuple[MutableMapping[Any, Any], Any, Callable[..., Any], UserLine]]:
    """Return the hooks of the user's on modules and on gradients of parameters, each with what holds it and its key."""
    holders = [getattr(module, name) for module in model.modules() for name in _MODULE_HOOKS]
    holders += [getattr(one, name, None) for one in model.parameters() for name in _PARAMETER_HOOKS]
    hooks = [(holder, key, hook) for holder in holders if holder for key, hook in holder.items()]
    return [(holder, key, hook, line) for holder, key, hook in hooks if (line := line_of(hook)) is not None]


def _sets_to_none(arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    return bool(options["set_to_none"] if "set_to_none" in options else arguments[1] if len(arguments) > 1 else True)
