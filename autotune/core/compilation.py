"""The work of torch.compile in one probe, by torch's own counters."""

from __future__ import annotations

from autotune.core.records import Record


class Compilation(Record, frozen=True, kw_only=True):
    """What torch.compile did in one probe: `torch._dynamo.utils.counters`, and the seconds that it notes itself."""

    frames: int  # that were compiled; 0: nothing was, whatever was asked for
    graphs: int
    graph_breaks: int  # places where a graph ends and Python continues
    recompilations: int  # of frames that were compiled before, because shapes or other facts changed
    frames_in_window: int = 0  # of all these, those in the timed window
    seconds: float  # of all, without importing the compiler
    seconds_in_window: float = 0.0
    cache_hits: int = 0  # graphs whose code was found in the study's cache
    cache_misses: int = 0

    @property
    def is_cold(self) -> bool:
        """Whether code was generated that no probe of the study had generated before."""
        return self.cache_misses > 0
