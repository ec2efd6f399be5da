"""Progress is told without ever disturbing the probe."""

from __future__ import annotations

import os
from pathlib import Path

from autotune.child.lifeline import Progress


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_phases_are_told_and_timed() -> None:
    clock = Clock()
    read, write = os.pipe()
    progress = Progress(write, clock)

    clock.seconds = 2.0
    progress.phase("load")
    clock.seconds = 5.0
    progress.phase("measure")

    assert os.read(read, 100) == b"phase load\nphase measure\n"
    assert progress.current == "measure"
    assert progress.seconds == {"start": 2.0, "load": 3.0, "measure": 0.0}
    os.close(read)
    os.close(write)


def test_a_phase_that_comes_twice_counts_in_full() -> None:
    clock = Clock()
    progress = Progress(None, clock)

    for name in ("load", "build", "load", "build"):
        progress.phase(name)
        clock.seconds += 1.0

    assert progress.seconds == {"start": 0.0, "load": 2.0, "build": 2.0}


def test_most_beats_cost_no_write() -> None:
    clock = Clock()
    read, write = os.pipe()
    progress = Progress(write, clock)

    for _ in range(1000):
        progress.beat()
        clock.seconds += 0.001

    assert 9 <= os.read(read, 1000).count(b"step\n") <= 11
    os.close(read)
    os.close(write)


def test_a_pipe_that_nobody_reads_does_not_stop_the_probe() -> None:
    read, write = os.pipe()
    progress = Progress(write)

    for _ in range(10_000):
        progress.phase("x" * 100)

    os.close(read)
    progress.phase("nobody listens")
    os.close(write)
    progress.phase("closed")
    assert progress.current == "closed"


def test_a_file_under_the_number_of_the_closed_pipe_is_left_alone(tmp_path: Path) -> None:
    read, write = os.pipe()
    progress = Progress(write)
    with (tmp_path / "mine").open("wb") as mine:
        os.dup2(mine.fileno(), write)

        progress.phase("load")

    assert (tmp_path / "mine").read_bytes() == b""
    os.close(read)
    os.close(write)
