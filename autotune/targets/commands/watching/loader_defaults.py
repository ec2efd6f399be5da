"""Arguments of DataLoaders, set from outside where whoever makes them leaves them out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any

from torch.utils.data import DataLoader

_SIGNATURE = inspect.signature(DataLoader.__init__)  # as torch has it, whoever else has wrapped it
WORKERS = "num_workers"  # DataLoader's name; others go with it
_OF_WORKERS = ("prefetch_factor", "persistent_workers")  # which DataLoader refuses without them


class LoaderDefaults:
    """Other defaults for `DataLoader(...)`: what its maker gives is never changed."""

    def __init__(
        self, options: Mapping[str, Any] = MappingProxyType({}), asked: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """`options` are set where no workers were given, all of them; `asked` wherever each was not given itself."""
        self._options, self._asked = dict(options), dict(asked)
        self._open: dict[int, set[str]] = {}  # by dataset: what a loader of it was made without a word on

    def reach(self, data: Any, option: str) -> bool:
        """Whether that option of a loader of this dataset can be changed."""
        return option in self._open.get(id(data), ())

    def making(self, original: Callable[..., None]) -> Callable[..., None]:
        """`DataLoader.__init__` with these defaults."""

        @wraps(original)
        def make(loader: Any, *arguments: Any, **named: Any) -> None:
            try:
                given = _SIGNATURE.bind(loader, *arguments, **named).arguments
            except TypeError:  # which the original says better
                return original(loader, *arguments, **named)
            self._open.setdefault(id(given["dataset"]), set()).update(_SIGNATURE.parameters.keys() - given.keys())
            named |= {name: value for name, value in self._wanted(given).items() if name not in given}
            return original(loader, *arguments, **named)

        return make

    def _wanted(self, given: Mapping[str, Any]) -> dict[str, Any]:
        wanted = {**({} if WORKERS in given else self._options), **self._asked}
        has_workers = bool(given.get(WORKERS, wanted.get(WORKERS)))
        return {name: value for name, value in wanted.items() if has_workers or name not in _OF_WORKERS}
