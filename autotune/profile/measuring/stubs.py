"""Stand-ins for calls of the user's that are left out: each returns what the call returned last.

    call ─► stand-in ─ noting ─► call, and remember what it gave
                     ─ is_on ──► what was remembered                 from the slow line only

Nothing of it is in steps that are timed otherwise. Where nothing may stand in, `core/slow_line_sentences.py` says why.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from autotune.profile.measuring.calls import CALLS, SELECTIONS, hooks_of_users, metrics
from autotune.profile.measuring.stopwatch import replaced
from autotune.profile.measuring.user_lines import UserLine, calling_line, owner, user_modules
from autotune.profile.records import SlowLine, Slowness

_GIVES_UP: Mapping[str, str] = {
    "tail": "the order of samples",
    "order": "the order of samples",
    "anomaly detection is": "the error that names the operation behind a NaN",
    "deterministic algorithms are": "results that repeat from run to run",
}
_UNUSED: tuple[Slowness, ...] = ("host read", "python", "waiting")  # where the same value again proves nothing


def gives_up(one: SlowLine) -> str:
    """Return what is lost by leaving the line out, whatever its cost; empty: nothing known."""
    return _GIVES_UP.get(one.kind, "") or (_GIVES_UP.get(one.what, "") if one.kind == "switch" else "")


class Stub:
    """Replaces the calls of one slow line by their last results."""

    def __init__(self, one: SlowLine) -> None:
        self._place, self._kind = one.place, one.kind
        self._is_line = dict[UserLine, bool]()
        self._remembered: list[Any] = []  # the last value, if there is one
        self.is_on, self.is_noting = False, False
        self.stood_in = 0  # times
        self._varied = self._has_graph = False

    def set(self, is_on: bool) -> None:
        """Replace the calls from now on, or no more."""
        self.is_on = is_on

    @property
    def doubt(self) -> str:
        """Return, after steps with and without it, why the line may not be left out; empty: it may."""
        if not self.stood_in and self._has_graph:
            return "the backward pass needs what it gives"
        if not self.stood_in:
            return "it is not called by its name, so nothing could stand in for it"
        is_nothing = bool(self._remembered) and self._remembered[0] is None
        if self._kind in _UNUSED and not self._varied and not is_nothing:
            return "it gave the same in every step, so whether the loss needs it is not known"
        return ""

    def standing_in(
        self, call: Callable[..., Any], *, always: bool = False, where: Callable[[], bool] = lambda: True
    ) -> Callable[..., Any]:
        """Return what stands in for `call`: at the slow line, or `always`; and only `where` it may."""

        def stand_in(*arguments: Any, **options: Any) -> Any:
            if not (self.is_on or self.is_noting) or not where() or not (always or self._is_here(sys._getframe(1))):
                return call(*arguments, **options)
            if self.is_on and self._remembered:
                self.stood_in += 1
                return self._remembered[0]
            value = call(*arguments, **options)
            if self.is_noting and _has_graph(value):
                self._has_graph = True
            elif self.is_noting:
                self._varied |= bool(self._remembered) and not _same(value, self._remembered[0])
                self._remembered = [value]
            return value

        return stand_in

    def _is_here(self, frame: Any) -> bool:
        line = calling_line(frame)
        if line is None:
            return False
        if line not in self._is_line:
            self._is_line[line] = line.place == self._place
        return self._is_line[line]


@contextmanager
def left_out(stub: Stub, one: SlowLine, model: torch.nn.Module) -> Iterator[bool]:
    """Let `stub` replace calls until the end; yield whether it can replace any."""
    with ExitStack() as stack:
        yield any([_put(stack, *each) for each in _places(stub, one, model)])


def _places(stub: Stub, one: SlowLine, model: torch.nn.Module) -> Iterator[tuple[Any, str, Any]]:
    """Yield what holds the calls of a slow line, by which name, and what stands in for them."""
    if one.kind in ("python", "waiting"):
        for holder, name, function in _functions(one.place):
            yield holder, name, stub.standing_in(function, always=True, where=_called_by_user)
    elif one.kind == "evaluating":
        yield model, "forward", stub.standing_in(model.forward, where=lambda: not torch.is_grad_enabled())
    elif one.kind == "hook":
        for hooks, key, hook, line in hooks_of_users(model):
            if line.place == one.place:
                yield hooks, key, stub.standing_in(hook, always=True)
    elif one.kind == "clone":
        yield Tensor, "clone", _giving_itself(stub, Tensor.clone)
    for holder, name, kind, what in (*CALLS, *SELECTIONS, *metrics()):
        if (kind, what) == (one.kind, one.what) and one.kind != "zeroing":
            yield holder, name, stub.standing_in(getattr(holder, name))


def _put(stack: ExitStack, holder: Any, name: Any, stand_in: Any) -> bool:
    if isinstance(holder, dict):
        stack.callback(holder.__setitem__, name, holder[name])
        holder[name] = stand_in
        return True
    before = getattr(holder, name)
    stack.enter_context(replaced(holder, name, stand_in))
    for module in user_modules() if isinstance(holder, ModuleType) else ():
        for known in [known for known, value in vars(module).items() if value is before]:
            stack.enter_context(replaced(module, known, stand_in))
    return True


def _functions(place: str) -> Iterator[tuple[Any, str, Any]]:
    """Yield the holder of the user's function that `place` names, the name there, and the function."""
    file, _, function = place.partition(" in ")
    path = Path(file.rpartition(":")[0]).resolve()
    *holders, name = function.split(".")
    for module in user_modules():
        if Path(str(module.__file__)).resolve() != path:
            continue
        holder: Any = module
        for each in holders:
            holder = getattr(holder, each, None)
        if inspect.isfunction(found := vars(holder).get(name) if holder is not None else None):
            yield holder, name, found


def _called_by_user() -> bool:
    """Whether the user's code calls: steps cannot do without what autotune or torch call, `loss` or `forward`."""
    return owner(sys._getframe(2).f_code.co_filename) == "user"


def _giving_itself(stub: Stub, call: Any) -> Callable[..., Any]:
    """Return what stands in for a copy: the tensor itself."""

    def stand_in(tensor: Any, *arguments: Any, **options: Any) -> Any:
        if not stub.is_on or not stub._is_here(sys._getframe(1)):
            return call(tensor, *arguments, **options)
        stub.stood_in += 1
        return tensor

    return stand_in


def _has_graph(value: Any) -> bool:
    """Whether a backward pass may need what was made: that cannot be handed out twice."""
    if isinstance(value, Tensor):
        return value.requires_grad
    if isinstance(value, Mapping):
        return any(map(_has_graph, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_graph, value[:8]))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and torch.equal(one, other)
    try:
        return bool(one == other) or (one != one and other != other)
    except (ValueError, RuntimeError, TypeError):  # arrays, and what cannot be compared
        return repr(one) == repr(other)


@contextmanager
def out_of_order() -> Iterator[Callable[[bool], None]]:
    """Yield what lets loader workers hand over batches as they are ready, or in order again."""
    hand_over: Any = _MultiProcessingDataLoaderIter._next_data
    is_in_order = True

    def set_order(is_without: bool) -> None:
        nonlocal is_in_order
        is_in_order = not is_without

    def handing_over(loading: Any) -> Any:
        loading._in_order = is_in_order
        return hand_over(loading)

    with replaced(_MultiProcessingDataLoaderIter, "_next_data", handing_over):
        yield set_order
