"""The optimizers of a script: which line made each, what it trains, and in which order they step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, distributed
from torch.optim.optimizer import Optimizer

from autotune.targets.bare_parameters import bare_name, namespaces_of
from autotune.targets.commands.watching.among_ranks import uses_rpc
from autotune.targets.tracebacks import calling_place


class SteppingOptimizers:
    """The optimizers that were noted, and the steps of these; lines are known of those made while `watched`."""

    def __init__(self) -> None:
        self._places: WeakKeyDictionary[Optimizer, str] = WeakKeyDictionary()
        self._noted: dict[int, Optimizer] = {}  # by identity, kept alive
        self._trained: dict[int, set[int]] = {}  # identities of the parameters of each
        self._order: list[int] = []  # of steps
        self.had_group = False  # at one of these steps: a script may have left its process group since

    def __contains__(self, optimizer: Optimizer) -> bool:
        return id(optimizer) in self._noted

    @property
    def places(self) -> list[str]:
        """The lines that made the noted ones, such as `train.py:12`; empty where it is unknown."""
        return [self._places.get(one, "") for one in self._noted.values()]

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch until the `with` block ends."""
        original = Optimizer.__init__
        Optimizer.__init__ = self._making(original)  # type: ignore[method-assign]
        try:
            yield
        finally:
            Optimizer.__init__ = original  # type: ignore[method-assign]

    def place(self, optimizer: Optimizer) -> str:
        """Return the line that made it, `train.py:12`; empty: unknown."""
        return self._places.get(optimizer, "")

    def note(self, optimizer: Optimizer) -> None:
        """Note a step of an optimizer that is noted from now on."""
        self._noted[id(optimizer)] = optimizer
        self._trained.setdefault(id(optimizer), set()).update(map(id, trained_by(optimizer)))
        self.had_group |= distributed.is_initialized() or uses_rpc()
        self.note_step(optimizer)

    def note_step(self, optimizer: Optimizer) -> None:
        """Note a step, if the optimizer is noted."""
        if optimizer in self:
            self._order.append(id(optimizer))

    def bare_name(self, parameter: Tensor) -> str:
        """Return what to call a parameter that no module has; to be asked while the script calls an optimizer."""
        optimizer = self._noted[self._of(parameter)[0]]
        return bare_name(parameter, optimizer, namespaces_of(sys._getframe(1)))

    def trains_again(self, bare: Tensor, of_modules: Collection[int]) -> bool:
        """Return whether a parameter that no module has is trained from batch to batch, as those of modules are.

        Others are made for a batch, as a perturbation of it, and are meant to be another on each rank. It is trained
        again if its optimizer trains parameters of modules, too, or steps it before and after one that does.
        """
        own = self._of(bare)
        models = {key for key, trained in self._trained.items() if not trained.isdisjoint(of_modules)}
        at = [number for number, key in enumerate(self._order) if key in own]
        return not models.isdisjoint(own) or any(key in models for key in self._order[at[0] : at[-1]])

    def _of(self, parameter: Tensor) -> list[int]:
        return [key for key, trained in self._trained.items() if id(parameter) in trained]

    def _making(self, original: Callable[..., None]) -> Callable[..., None]:
        def make(optimizer: Optimizer, *arguments: Any, **named: Any) -> None:
            original(optimizer, *arguments, **named)
            self._places[optimizer] = calling_place(sys._getframe(1))

        return make


def trained_by(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters that it trains, frozen ones left out."""
    return [one for group in optimizer.param_groups for one in group["params"] if one.requires_grad]
