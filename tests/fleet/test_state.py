"""The file that lists the workers of a study."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from autotune.fleet.records import FleetWorker
from autotune.fleet.state import read_workers, write_workers
from autotune.study import disk
from tests.worlds import environment

WORKERS = tuple(FleetWorker(id=at, name=f"node{at}", host="here", environment=environment()) for at in range(8))


def test_threads_that_write_at_once_forget_no_worker_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / disk.STUDY).write_text("{}")
    write_workers(tmp_path, WORKERS)

    def write(few: int) -> None:
        for _ in range(100):
            write_workers(tmp_path, WORKERS[:few])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, (4, 5, 6, 7)))

    assert {one.name for one in read_workers(tmp_path)} == {one.name for one in WORKERS}
