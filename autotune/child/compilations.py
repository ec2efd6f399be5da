"""Watches torch.compile in a probe: where it writes, and torch's counters of compilations."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from msgspec.structs import replace

from autotune.core.compilation import Compilation

NOTHING = Compilation(frames=0, graphs=0, graph_breaks=0, recompilations=0, seconds=0.0)


def write_to_cache() -> None:
    """Make torch.compile write all its files into its cache, precompiled headers too (torch 2.13: 150 MB in /tmp)."""
    try:
        places: Any = import_module("torch._inductor.runtime.runtime_utils")
    except ImportError:  # another version of torch keeps them elsewhere
        return
    places.default_cache_dir = places.cache_dir


def compiled() -> Compilation:
    """Return what this process has compiled so far (torch 2.13: `torch._dynamo.utils`, `convert_frame`)."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    frames: Any = sys.modules.get("torch._dynamo.convert_frame")
    if dynamo is None or frames is None:  # not loaded: nothing was compiled
        return NOTHING
    counters = dynamo.counters
    seconds = dynamo.cumulative_time_spent_ns
    caches = (counters["aot_autograd"], counters["inductor"])
    return Compilation(
        frames=counters["frames"]["ok"],
        graphs=counters["stats"]["unique_graphs"],
        graph_breaks=counters["graph_break"].total(),
        recompilations=sum(count - 1 for count in frames.FRAME_COMPILE_COUNTER.values()),
        seconds=round(
            sum(seconds.get(name, 0) for name in ("entire_frame_compile", "entire_backward_compile")) / 1e9, 3
        ),
        cache_hits=sum(one["autograd_cache_hit"] + one["fxgraph_cache_hit"] for one in caches),
        cache_misses=sum(one["autograd_cache_miss"] + one["fxgraph_cache_miss"] for one in caches),
    )


class Compiling:
    """The compilations during one probe, and in its window."""

    def __init__(self, *, asked: bool) -> None:
        """`asked`: the configuration compiles, so it is worth reporting even that nothing was compiled."""
        self._asked, self._window = asked, NOTHING

    def phase(self, name: str) -> None:
        """Note that the phase `name` begins."""
        if name == "measure":
            self._window = compiled()

    def after_window(self) -> Compilation | None:
        """Return what was compiled until now, and since the window began; None: nothing, and not asked for."""
        now, before = compiled(), self._window
        if not (self._asked or now.frames):
            return None
        return replace(
            now,
            frames_in_window=now.frames - before.frames,
            seconds_in_window=round(now.seconds - before.seconds, 3),
        )
