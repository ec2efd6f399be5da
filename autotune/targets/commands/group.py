"""A rank seen from within: whether this process is one of several that a launcher started, and that train together."""

from __future__ import annotations

import os

from autotune.machine.interference import LEADER


def world_size() -> int:
    """Return how many processes train together; 1 where no launcher was watched to start this one."""
    return int(os.environ.get("WORLD_SIZE") or 1) if LEADER in os.environ else 1
