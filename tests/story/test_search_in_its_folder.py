"""Where a study lies: what a search puts there, moves aside, and leaves alone."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from autotune.errors import EnvironmentUnfit, StudyError
from autotune.study import disk
from autotune.testing import FakeLauncher
from tests.worlds import Listener, declared, searched

FEW = {"probes": 2, "time_budget_seconds": 600.0, "tune": ("amp_dtype",)}


def _search(folder, **settings):
    return searched(Path(folder), FakeLauncher(facts=declared()), **FEW, **settings)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("# mine\n")
    return tmp_path


def test_a_fresh_study_can_be_rebuilt_and_so_can_the_one_that_was_moved_aside(home):
    _search("study")
    _search("study", target="other.py", mode="fresh")

    for name, target in (("study", "other.py"), ("study.old-1", "model.py")):
        (home / name / disk.STUDY).unlink()
        _search(name, target=target)

        assert disk.read_request(Path(name)).target == target


@pytest.mark.parametrize("mode", ["auto", "fresh"])
@pytest.mark.parametrize("place", [".", "..", "thesis"])
def test_a_folder_of_the_users_own_is_refused_before_anything_is_made(home, mode, place):
    inside = disk.make(home / "thesis")
    (inside / "thesis.tex").write_text("mine\n")
    before = sorted(home.rglob("*"))
    os.chdir(inside if place == ".." else home)

    with pytest.raises(StudyError, match=r"holds (model|thesis).*, and no study\. Those .*\. .*with --study"):
        _search(place, mode=mode)

    assert sorted(home.rglob("*")) == before


def test_fresh_moves_no_file_that_is_not_the_studys(home):
    _search("study")
    (home / "study" / "report.html").touch()  # by `autotune report`
    (home / "study" / "best-1.json").touch()
    (home / "study" / "notes.md").write_text("mine\n")
    before = sorted(home.rglob("*"))

    with pytest.raises(StudyError, match=r"move all of study aside, and besides the study it holds notes\.md, "):
        _search("study", mode="fresh")

    assert sorted(home.rglob("*")) == before
    assert _search("study").probes  # going on is no harm to them


def test_fresh_says_where_the_earlier_study_went(home):
    _search("study")
    (home / "study" / "report.html").touch()
    listener = Listener()

    _search("study", listener=listener, mode="fresh")

    assert "The study that lay in study was moved to study.old-1." in listener.notes
    assert (home / "study.old-1" / "report.html").exists()


def test_an_empty_folder_is_a_place_for_a_study(home):
    disk.make(home / "mine")

    _search("mine", mode="fresh")

    assert disk.is_study(home / "mine")


@pytest.mark.parametrize("mode", ["auto", "resume", "fresh"])
def test_the_folder_of_a_race_is_refused_as_that(home, mode):
    disk.make(home / "race" / disk.PROBES / "0000")
    (home / "race" / disk.RACE).touch()

    with pytest.raises(StudyError, match=r"is the folder of a race: race\.json .*\. .*--study"):
        _search("race", mode=mode)

    assert sorted(one.name for one in (home / "race").iterdir()) == [disk.PROBES, disk.RACE]


@pytest.mark.parametrize("name", [b"caf\xe9", b"caf\xe9/study"])
def test_a_path_that_is_not_utf_8_is_refused_before_anything_is_made(home, name):
    with pytest.raises(StudyError, match=r"not UTF-8.*\. .*\. .*--study"):
        _search(os.fsdecode(name))

    assert [path.name for path in home.iterdir()] == ["model.py"]


def test_a_file_system_without_locks_keeps_nothing_of_a_search(home, monkeypatch):
    def flock(file, operation):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)

    with pytest.raises(EnvironmentUnfit, match="cannot be locked"):
        _search("studies/model")

    assert [path.name for path in home.iterdir()] == ["model.py"]
