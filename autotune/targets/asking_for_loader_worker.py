"""Notices whether code asks for the number of its loader worker, in order to load only its share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch.utils.data import get_worker_info

_OF_THE_LOADER = ("torch.utils.data._utils", "torch.utils.data.dataloader", "torch.random")  # ask for each batch


@contextmanager
def asking_for_loader_worker() -> Iterator[list[str]]:
    """Yield a list of the modules that call `get_worker_info` in this thread meanwhile, without torch's own."""
    asking: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is get_worker_info.__code__ and frame.f_back is not None:
            module = str(frame.f_back.f_globals.get("__name__"))
            if not module.startswith(_OF_THE_LOADER):
                asking.append(module)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield asking
    finally:
        sys.setprofile(before)
