"""Arguments of DataLoaders, set from outside where whoever makes them leaves them out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from torch.utils.data import DataLoader

_SIGNATURE = inspect.signature(DataLoader.__init__)  # as torch has it, whoever else has wrapped it
WORKERS = "num_workers"  # DataLoader's name; the other options go with it


class LoaderDefaults:
    """Other defaults for `DataLoader(...)`; where workers were given, nothing is changed."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._open: dict[int, bool] = {}  # by dataset: whether a loader of it was made without a word on workers

    def reach(self, data: Any) -> bool:
        """Whether a loader of this dataset can be changed."""
        return self._open.get(id(data), False)

    def making(self, original: Callable[..., None]) -> Callable[..., None]:
        """`DataLoader.__init__` with these defaults."""

        @wraps(original)
        def make(loader: Any, *arguments: Any, **named: Any) -> None:
            try:
                given = _SIGNATURE.bind(loader, *arguments, **named).arguments
            except TypeError:  # which the original says better
                return original(loader, *arguments, **named)
            is_open = WORKERS not in given
            data = id(given["dataset"])
            self._open[data] = self._open.get(data, False) or is_open
            if is_open:
                named |= {name: value for name, value in self._options.items() if name not in given}
            return original(loader, *arguments, **named)

        return make
