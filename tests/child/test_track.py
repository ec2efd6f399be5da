"""The track of memory: even, short however long the window is, and true where the kernel tells."""

from __future__ import annotations

import itertools
import mmap
import sys

import pytest

from autotune.child.memory_trace import MOST_READINGS, MemoryTrack, track_on


@pytest.mark.parametrize("steps", [1, 40, 64, 65, 1000, 5000])
def test_readings_are_spread_evenly_over_the_window_and_few(steps: int) -> None:
    held = iter(range(steps))
    track = MemoryTrack(lambda: next(held))

    for _ in range(steps):
        track.step()

    indices = [index for index, _ in track.readings]
    gaps = {after - before for before, after in itertools.pairwise(indices)}
    assert indices[0] == 0
    assert len(gaps) <= 1
    assert len(indices) <= MOST_READINGS
    assert steps - indices[-1] <= max(gaps, default=1)
    assert len(indices) >= min(steps, MOST_READINGS // 2)


def test_each_reading_belongs_to_its_step() -> None:
    reads = 0

    def read() -> int:
        nonlocal reads
        reads += 1
        return 1000 + reads

    track = MemoryTrack(read)
    for _ in range(3):
        track.step()

    assert track.readings == ((0, 1001), (1, 1002), (2, 1003))


def test_where_memory_cannot_be_told_there_are_no_readings() -> None:
    track = MemoryTrack(lambda: None)

    track.step()

    assert track.readings == ()


@pytest.mark.skipif(sys.platform != "linux", reason="the resident set is read from /proc/self/statm")
def test_the_track_of_the_cpu_sees_memory_come_and_go() -> None:
    track = track_on("cpu")
    size = 64 * 2**20

    track.step()
    block = mmap.mmap(-1, size)
    block.write(b"x" * size)
    track.step()
    block.close()
    track.step()

    before, with_block, after = [held for _, held in track.readings]
    assert with_block - before == pytest.approx(size, rel=0.1)
    assert with_block - after == pytest.approx(size, rel=0.1)
