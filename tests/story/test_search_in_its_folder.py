"""Where a study lies: what a search puts there, moves aside, and leaves alone."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from autotune.errors import EnvironmentUnfit, StudyError
from autotune.study import layout as disk
from autotune.study.layout import IGNORE
from autotune.testing import FakeLauncher
from tests.worlds import declared, searched

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


def test_a_study_in_a_folder_of_the_users_own_hides_nothing_from_git(home):
    _search(".")
    _search(".")

    assert disk.is_study(home)
    assert not (home / IGNORE).exists()


def test_fresh_never_moves_the_folder_that_somebody_works_in(home):
    inside = disk.make(home / "inside")
    _search(".")
    before = sorted(home.rglob("*"))

    for place in (".", "..", str(home)):
        os.chdir(inside if place == ".." else home)
        with pytest.raises(StudyError, match=r"moved aside.*\. .*\. .*another --study"):
            _search(place, mode="fresh")

    assert sorted(home.rglob("*")) == before


def test_fresh_never_moves_the_target_away(home):
    project = disk.make(home / "project")
    (project / "train.py").write_text("# mine\n")
    _search("project", target="project/train.py")

    with pytest.raises(StudyError, match=r"holds project/train\.py"):
        _search("project", target="project/train.py", mode="fresh")

    assert (project / "train.py").exists()


def test_a_fresh_study_where_none_was_is_begun_anywhere(home):
    _search(".", mode="fresh")

    assert disk.is_study(home)


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
