"""Reads a snapshot of CUDA's memory, as `torch.cuda.memory._snapshot` returns it: which lines made what is alive. Pure.

segments ─► blocks (size, state) ─► frames (filename, line, name), innermost first     torch 2.13, cuda/memory.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.core.memory_breakdown import AllocationSite, sites_of
from autotune.targets.tracebacks import is_users, line_of

OUT_OF_MEMORY = "out_of_memory.pickle"  # the file of a snapshot that is taken when memory runs out


def sites_of_snapshot(snapshot: Mapping[str, Any], device: int) -> tuple[AllocationSite, ...]:
    """Return the user's lines whose tensors are alive on that device, the most bytes first.

    Bytes are those of the allocator's blocks, which it rounds up. Blocks that are free count nowhere. Blocks without
    a frame of the user's, such as those of a backward pass, have an empty place.
    """
    users: dict[str, bool] = {}
    return sites_of((_place(block.get("frames", ()), users), block["size"]) for block in _alive(snapshot, device))


def _alive(snapshot: Mapping[str, Any], device: int) -> Iterator[Mapping[str, Any]]:
    """Yield blocks that a tensor has, or that wait for another stream."""
    for segment in snapshot["segments"]:
        if segment.get("device", device) == device:
            yield from (block for block in segment["blocks"] if block["state"] != "inactive")


def _place(frames: Sequence[Mapping[str, Any]], users: dict[str, bool]) -> str:
    for frame in frames:
        file = frame["filename"]
        if file not in users:
            users[file] = is_users(Path(file))
        if users[file]:
            return line_of(file, frame["line"])
    return ""
