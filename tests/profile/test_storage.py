"""Storage, cold and warm: what was asked of it, rates of both, and which epochs have them."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from autotune.child.lifeline import Progress
from autotune.core.results import Failure, Outcome
from autotune.profile.child import measure
from autotune.profile.page import render
from autotune.profile.records import ProfileRequest, ProfileResult
from autotune.profile.storage_judge import is_cold, moved, rate, storage_doubts, storage_sentence, total_bytes
from autotune.profile.storage_records import StorageUse
from autotune.profile.storage_run import with_storage
from autotune.profile.table import profile_block
from tests.profiling import profiled, readings
from tests.targets_support import HEAD, clean_imports, write
from tests.worlds import GIB, config

FILES = (
    HEAD
    + """
from pathlib import Path
import numpy as np

PLACE = Path(__file__).parent / "samples"
PLACE.mkdir(exist_ok=True)
for number in range(96):
    np.save(PLACE / f"{number}.npy", np.zeros(4096, dtype=np.float32))
read = []

class Samples(Dataset):
    def __len__(self): return 96
    def __getitem__(self, index):
        read.append(index)
        return torch.from_numpy(np.load(PLACE / f"{index}.npy"))[:4], 1

def model(): return nn.Linear(4, 2)
def dataset(): return Samples()
"""
)
# A store that answers after 5 ms, behind a cache in a folder of the user's own.
REMOTE = (
    HEAD
    + """
import time
from pathlib import Path
import fsspec, numpy as np, io
from fsspec.implementations.memory import MemoryFileSystem

class Far(MemoryFileSystem):
    protocol = "far"
    def get_file(self, rpath, lpath, **options):
        time.sleep(0.005)
        super().get_file(rpath, lpath, **options)

fsspec.register_implementation("far", Far, clobber=True)

class Samples(Dataset):
    def __init__(self):
        for number in range(400):
            fsspec.filesystem("far").pipe_file(f"far://store/{number}", bytes(64))
        own = str(Path(__file__).parent / "own")
        self.files = fsspec.filesystem("filecache", target_protocol="far", cache_storage=own)
    def __len__(self): return 400
    def __getitem__(self, index):
        with self.files.open(f"far://store/{index}", "rb") as opened:
            return torch.tensor(list(opened.read()[:4])).float(), 1

def model(): return nn.Linear(4, 2)
def dataset(): return Samples()
"""
)
USE = StorageUse(
    workers=0, batch=10, cold=tuple(0.2 * number for number in range(1, 11)),
    warm=tuple(0.01 * number for number in range(1, 101)), samples=100, dataset_samples=1000, files=100,
    file_bytes=100 * 2**20, new_bytes=2**20, disk_bytes=100 * 2**20, memory_bytes=18 * GIB,
)  # fmt: skip


def stored(folder, text, **values):
    caches = folder / "caches"
    caches.mkdir(parents=True)
    asked = ProfileRequest(
        target=str(write(folder, text)), config=config(**{"batch_size": 8, **values}), device="cpu", extent="storage",
        output=str(caches),
    )  # fmt: skip
    with clean_imports():
        result = measure(asked, Progress(None))
    assert result.outcome is Outcome.OK
    return result.storage


@pytest.mark.slow
def test_files_are_dropped_from_the_page_cache_once_and_then_read_again_without(tmp_path, monkeypatch):
    dropped, drop = [], os.posix_fadvise

    def noted(descriptor, *arguments):
        dropped.append((str(Path(f"/proc/self/fd/{descriptor}").readlink()), arguments))
        drop(descriptor, *arguments)

    monkeypatch.setattr(os, "posix_fadvise", noted)
    use = stored(tmp_path, FILES)

    assert {arguments for _, arguments in dropped} == {(0, 0, os.POSIX_FADV_DONTNEED)}
    assert sorted(Path(path).name for path, _ in dropped) == sorted(f"{number}.npy" for number in range(96))
    assert use.samples == 96
    assert use.files == 96
    assert use.file_bytes == 96 * (4096 * 4 + 128)
    assert len(use.warm) > len(use.cold)


@pytest.mark.slow
def test_what_workers_open_is_seen_and_no_sample_is_read_twice_while_it_is_to_be_cold(tmp_path):
    use = stored(tmp_path, FILES.replace("range(96)", "range(2000)").replace("return 96", "return 2000"), num_workers=2)

    assert use.workers == 2
    assert use.files == use.samples
    assert rate(use.cold, use) > 0


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_remote_store_is_slow_at_first_and_its_users_cache_stays_as_it_is(tmp_path, workers):
    use = stored(tmp_path, REMOTE, num_workers=workers)

    assert use.caches == 1
    assert is_cold(use)
    assert rate(use.warm, use) > 2 * rate(use.cold, use)
    assert not (tmp_path / "own").exists()
    assert len(list((tmp_path / "caches").glob("*/*"))) > 64


@pytest.mark.slow
def test_of_samples_without_files_nothing_is_said(tmp_path):
    text = FILES.replace('np.load(PLACE / f"{index}.npy")', "np.zeros(4, dtype=np.float32)")

    assert stored(tmp_path / "memory", text) is None
    batch = HEAD + "def model(): return nn.Linear(4, 2)\ndef batch(batch_size): return torch.randn(8, 4), torch.ones(8)"
    assert stored(tmp_path / "batch", batch) is None


def test_a_rate_does_not_count_what_workers_read_before_the_first_batch():
    rounds = tuple(when for end in (3.0, 4.0, 5.0) for when in (end, end))

    assert rate((1.0, 2.0, 3.0), replace(USE, workers=0)) == 10
    assert rate(rounds, replace(USE, workers=2)) == 20  # after the first two
    assert rate((1.0, 1.0), replace(USE, workers=2)) is None


def test_later_epochs_are_warm_where_all_files_fit_into_memory():
    assert total_bytes(USE) == 1000 * 2**20
    assert storage_sentence(USE) == (
        "storage: first epoch 50.0 samples/s (cold), later 1,000 (warm: 1000 MiB of files fit into 18 GiB of memory)"
    )


def test_later_epochs_are_not_called_warm_where_the_files_do_not_fit():
    large = replace(USE, dataset_samples=10**6)

    assert "later not much more (1,000 were they warm: 977 GiB of files, 18 GiB of memory)" in storage_sentence(large)
    assert "from the cache's disk" in storage_sentence(replace(large, caches=1))


def test_files_that_a_cache_kept_all_the_same_are_not_called_cold():
    kept = replace(USE, disk_bytes=0)

    assert storage_sentence(kept).startswith("storage: first epoch not known (files stayed in memory), later 1,000")
    assert is_cold(replace(kept, caches=1))  # fetched from the store, whatever the disk did
    assert is_cold(replace(kept, disk_bytes=None))


def test_one_large_file_is_cold_where_what_its_samples_read_came_from_a_disk():
    """Of 800 MB a hundredth was read: 4 KiB a sample, all of it from the disk (measured: 26 of 819 MB, cold)."""
    shared = replace(USE, dataset_samples=10_000, files=1, file_bytes=800 * 10**6, new_bytes=0.0)

    assert is_cold(replace(shared, disk_bytes=8 * 10**6))
    assert not is_cold(replace(shared, disk_bytes=10**5))
    assert not is_cold(replace(shared, samples=10_000, disk_bytes=8 * 10**6))


@pytest.mark.slow
def test_a_file_that_the_first_sample_reads_whole_is_read_warm_without_it(tmp_path):
    loads = """        if not read: read.append(np.load(PLACE / "0.npy"))
        return torch.from_numpy(read[0])[:4], 1
"""
    begin = FILES.index("        read.append"), FILES.index("\ndef model")

    use = stored(tmp_path, FILES[: begin[0]] + loads + FILES[begin[1] :])

    assert use.files == 1
    assert rate(use.warm, use) > 0


def test_too_few_batches_are_said_to_be_too_few():
    assert "not known" in storage_sentence(replace(USE, cold=(0.2,)))


def test_a_rate_that_moves_is_said():
    slow_first = tuple(0.2 * number for number in range(1, 6)) + tuple(1 + 0.1 * number for number in range(1, 6))

    assert moved(USE.cold, USE) is None
    assert moved(slow_first, USE) == pytest.approx((50, 100))
    (doubt,) = storage_doubts(replace(USE, cold=slow_first))
    assert "Samples that are read first came at 50.0 samples/s, and later in the same measurement at 100" in doubt


def test_noise_is_no_movement():
    noisy, when = [], 0.0
    for number in range(20):
        when += 0.2 if number % 3 else 0.3 + 0.02 * (number > 10)
        noisy.append(when)

    assert moved(noisy, USE) is None


def test_terminal_and_page_say_it():
    result = readings(storage=USE)

    shown = profile_block("model.py", config(), "cpu", result).plain
    assert storage_sentence(USE) in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 100
    assert storage_sentence(USE) in render(profiled(storage=USE))


def test_a_reading_that_fails_is_said_and_costs_no_more(tmp_path):
    class Failing:
        def run(self, request, folder):
            failure = Failure(phase="measure", message="OSError: gone.\nmore", evidence="exit status")
            return ProfileResult(outcome=Outcome.USER_ERROR, failure=failure)

    asked = ProfileRequest(target="model.py", config=config(), device="cpu")
    found = with_storage(readings(), asked, Failing(), tmp_path)

    assert found.left_out == ("How fast storage is was not measured: OSError: gone.",)
    assert found.parts
