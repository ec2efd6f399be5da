"""Sets arguments of DataLoaders from outside, if the code that makes the DataLoader leaves them out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any

from torch.utils.data import DataLoader

_SIGNATURE = inspect.signature(DataLoader.__init__)  # torch's own, even if other code has wrapped it
WORKERS = "num_workers"  # DataLoader's name; others go with it
_OF_WORKERS = ("prefetch_factor", "persistent_workers")  # options that DataLoader refuses without workers


class LoaderDefaults:
    """Other defaults for `DataLoader(...)`: arguments that are given are never changed."""

    def __init__(
        self, options: Mapping[str, Any] = MappingProxyType({}), asked: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """`options` are all set if `num_workers` was not given; each of `asked` is set if it was not given."""
        self._options, self._asked = dict(options), dict(asked)
        self._open: dict[int, set[str]] = {}  # by dataset: the arguments that its loader was made without

    def reach(self, data: Any, option: str) -> bool:
        """Return whether that option of a loader of this dataset can be changed."""
        return option in self._open.get(id(data), ())

    def making(self, original: Callable[..., None]) -> Callable[..., None]:
        """Return `DataLoader.__init__` with these defaults."""

        @wraps(original)
        def make(loader: Any, *arguments: Any, **named: Any) -> None:
            try:
                given = _SIGNATURE.bind(loader, *arguments, **named).arguments
            except TypeError:  # the original raises a better error
                return original(loader, *arguments, **named)
            self._open.setdefault(id(given["dataset"]), set()).update(_SIGNATURE.parameters.keys() - given.keys())
            named |= {name: value for name, value in self._wanted(given).items() if name not in given}
            return original(loader, *arguments, **named)

        return make

    def _wanted(self, given: Mapping[str, Any]) -> dict[str, Any]:
        wanted = {**({} if WORKERS in given else self._options), **self._asked}
        has_workers = bool(given.get(WORKERS, wanted.get(WORKERS)))
        return {name: value for name, value in wanted.items() if has_workers or name not in _OF_WORKERS}
