"""One half of the work of training, timed while the other half rests."""

from __future__ import annotations

from autotune.core.records import Record


class IsolatedTiming(Record, frozen=True, kw_only=True):
    """One half of the work, timed while the other half rested: computing on one batch, or loading batches only."""

    seconds: tuple[float, ...]  # per optimizer step (or block of them) of computing, or per round of loading's workers
    samples: int  # in each of them

    @property
    def samples_per_second(self) -> float:
        """Samples per second of wall time, without the first half, in which the workers may still fill their queue."""
        settled = self.seconds[len(self.seconds) // 2 :]
        return self.samples * len(settled) / sum(settled)
