"""The modules that a training calls: besides the models that train, such as a teacher or a loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook


class CalledModules:
    """Notes the modules whose forward pass begins while it watches."""

    def __init__(self) -> None:
        self._called = dict[int, nn.Module]()  # by identity

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch until the `with` block ends."""
        handle = register_module_forward_pre_hook(self._note)
        try:
            yield
        finally:
            handle.remove()

    def others_than(self, models: Sequence[nn.Module]) -> list[nn.Module]:
        """Return the outermost ones that are neither in these models nor around them, as a wrapper is."""
        known = {id(part) for one in models for part in one.modules()}
        apart = [one for one in self._called.values() if known.isdisjoint(map(id, one.modules()))]
        inner = {id(part) for one in apart for part in one.modules() if part is not one}
        return [one for one in apart if id(one) not in inner]

    def _note(self, module: nn.Module, arguments: Any) -> None:
        self._called[id(module)] = module
