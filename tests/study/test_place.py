"""What surrounds the store: other processes that want the study, disks that are full, folders of other users."""

import errno
import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from optuna.trial import TrialState

from autotune.core import codec
from autotune.core.requests import ProbeRequest
from autotune.errors import EnvironmentUnfit, StudyError
from autotune.objectives.verdict import judge
from autotune.study import disk
from autotune.study.lock import Lock
from autotune.study.store import NUMBER
from tests.study.test_study import REQUEST, _sampler, _store
from tests.worlds import measured


def _filled(folder):
    store, sampler = _store(folder), _sampler()
    for number in range(5):
        store.ask(sampler, number)
        store.tell(number, judge(measured(), REQUEST))
    store.close()


def _begun(folder):
    disk.new_attempt(folder, ProbeRequest)


HOLD = """
import sys
from pathlib import Path
from autotune.study.lock import Lock
lock = Lock(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A second process that holds the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"locked\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_search_on_a_study_is_refused_by_the_number_of_the_first(tmp_path, holder):
    with pytest.raises(StudyError, match=rf"searched by process {holder.pid}\. .*\. Wait for it, stop it .* --study"):
        Lock(tmp_path)


def test_a_killed_search_holds_no_lock(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()

    Lock(tmp_path).release()


def test_the_lock_names_its_present_owner(tmp_path):
    (tmp_path / disk.LOCK).write_text("999999999")

    lock = Lock(tmp_path)

    assert (tmp_path / disk.LOCK).read_text() == str(os.getpid())
    lock.release()


def test_a_lock_that_was_moved_away_meanwhile_holds_nothing(tmp_path, monkeypatch):
    flock, path = fcntl.flock, tmp_path / disk.LOCK

    def moved_meanwhile(file, operation):
        monkeypatch.setattr(fcntl, "flock", flock)
        path.rename(tmp_path / "aside")
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", moved_meanwhile)
    lock = Lock(tmp_path)

    with pytest.raises(StudyError, match="is being searched by process"):
        Lock(tmp_path)
    lock.release()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_an_unfit_environment(tmp_path, monkeypatch, number):
    def flock(file, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)

    with pytest.raises(EnvironmentUnfit, match=r"study\.lock cannot be locked: .*\. .*Lustre.*\. .*--study"):
        Lock(tmp_path)


def _complaint(folder, sender, attempts):
    """What happens to another user who makes these `attempts` at `folder`."""
    if os.getuid() == 0:
        os.setuid(65534)
    said = []
    for attempt in attempts:
        try:
            said.append(f"{attempt(folder)}")
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    sender.send(said)
    os._exit(0)


def _said_to_another_user(folder, *attempts):
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_complaint, args=(folder, sender, attempts))
    process.start()
    sender.close()
    said = receiver.recv()
    process.join()
    return said


def test_a_study_of_another_user_hides_none_of_ones_own():
    with tempfile.TemporaryDirectory() as place:  # not below tmp_path, which other users may not enter
        Path(place).chmod(0o755)
        for name in ("mine", "theirs"):
            codec.write(disk.make(Path(place, name)) / disk.STUDY, REQUEST)
        Path(place, "theirs").chmod(0o000)

        listed, named = _said_to_another_user(
            Path(place), lambda root: [one.name for one in disk.studies(root)], lambda root: disk.find(root / "theirs")
        )

    assert listed == "['mine']"
    assert named.startswith("EnvironmentUnfit: ")
    assert "theirs cannot be read: Permission denied. " in named


def test_a_folder_that_may_not_be_written_is_an_unfit_environment():
    with tempfile.TemporaryDirectory() as place:  # not below tmp_path, which other users may not enter
        Path(place).chmod(0o555)
        said = _said_to_another_user(Path(place), Lock, _filled, _begun)
        Path(place).chmod(0o755)

    assert [text.partition(":")[0] for text in said] == ["EnvironmentUnfit"] * 3
    assert all("cannot be written" in text and "--study" in text for text in said)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB."""
    place = disk.make(tmp_path / "small")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"a small file system needs the right to mount: {done.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def _fill(disk_root):
    with (disk_root / "ballast").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(1024))


@pytest.mark.slow
def test_a_full_disk_is_an_unfit_environment_and_loses_nothing(small_disk):
    _filled(small_disk)
    store, sampler = _store(small_disk), _sampler()
    _fill(small_disk)

    with pytest.raises(EnvironmentUnfit, match=r"cannot be written: .*\. .*full.*\. Free some space .* --study"):
        for number in range(100, 200):
            store.ask(sampler, number)
            store.tell(number, judge(measured(), REQUEST))
    with pytest.raises(EnvironmentUnfit, match="No space left"):
        Lock(small_disk)
    store.close()
    (small_disk / "ballast").unlink()

    again = _store(small_disk)
    again.reconcile((), {})
    kept = [frozen.user_attrs[NUMBER] for frozen in again.trials() if frozen.state is TrialState.COMPLETE]
    again.close()
    assert kept == [0, 1, 2, 3, 4]
