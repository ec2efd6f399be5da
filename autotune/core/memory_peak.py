"""The peaks of memory that a probe measured."""

from __future__ import annotations

from autotune.core.records import Record


class MemoryPeak(Record, frozen=True, kw_only=True):
    """Peaks over the whole probe, first step to validation. None: not measured on this device."""

    process_bytes: int  # resident set of the probe process
    workers_bytes: int = 0  # proportional set size of the loader workers, read once after the window
    allocated_bytes: int | None = None  # caching allocator: live tensors
    reserved_bytes: int | None = None  # caching allocator: segments held
    device_used_bytes: int | None = None  # total - free of the device at the end of the probe, all processes
    reserved_at_end_bytes: int | None = None  # caching allocator: segments held when `device_used_bytes` was read
    allocator_retries: int | None = None  # inside the window: how often the cache had to be flushed to go on

    @property
    def host_bytes(self) -> int:
        """Memory of the host: the probe and its workers."""
        return self.process_bytes + self.workers_bytes

    @property
    def bytes(self) -> int:
        """The bytes that are compared with the memory limit: the device's on an accelerator, else the host's.

        On the device they are the peak of the allocator and the memory outside of it, such as the context
        (docs/notes/memory.md 1).
        """
        if self.reserved_bytes is None:
            return self.host_bytes
        if self.device_used_bytes is None or self.reserved_at_end_bytes is None:
            return max(self.reserved_bytes, self.device_used_bytes or 0)
        return self.reserved_bytes + max(0, self.device_used_bytes - self.reserved_at_end_bytes)
