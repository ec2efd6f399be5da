"""The code of another revision: checked out for a while, with what git ignores, and gone afterwards."""

import itertools
import signal
import subprocess
import sys
import threading
import time

import pytest

from autotune.errors import UsageError
from autotune.launch import processes
from autotune.races.worktree import OWN, worktree


def git(folder, *words):
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    said = subprocess.run(("git", *author, *words), cwd=folder, check=True, capture_output=True, text=True)
    return said.stdout.splitlines()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    top = tmp_path / "repository"
    (top / "src" / "pkg").mkdir(parents=True)
    (top / "sub" / "__pycache__").mkdir(parents=True)
    (top / "sub" / "__pycache__" / "x.pyc").touch()
    (top / "sub" / "model.py").write_text("then")
    (top / "src" / "pkg" / "__init__.py").write_text("then")
    (top / ".gitignore").write_text("data\nstudies\n__pycache__\n")
    git(tmp_path, "init", "-q", "repository")
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "then")
    (top / "sub" / "model.py").write_text("now")
    (top / "sub" / "data").mkdir()
    (top / "sub" / "data" / "train.bin").write_text("samples")
    monkeypatch.chdir(top / "sub")
    return top


def test_it_has_the_code_of_then_and_the_data_of_now(repository):
    place = repository / "studies" / "race" / "worktree"
    place.parent.mkdir(parents=True)

    with worktree("HEAD", place) as found:
        assert found.folder == place / "sub"
        assert (found.folder / "model.py").read_text() == "then"
        assert (found.folder / "data" / "train.bin").read_text() == "samples"
        assert not (found.folder / "__pycache__").exists()
        assert not (place / "studies").exists()
        assert found.target(f"{repository}/sub/model.py") == f"{place}/sub/model.py"
        assert [found.commit] == git(repository, "rev-parse", "HEAD")

    assert not place.exists()
    assert (repository / "sub" / "data" / "train.bin").read_text() == "samples"
    assert len(git(repository, "worktree", "list")) == 1
    assert (repository / "sub" / "model.py").read_text() == "now"


def test_packages_that_were_installed_editable_are_those_of_then(repository, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(repository / "sub"), str(repository / "src"), str(OWN)])
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")

    with worktree("HEAD", repository.parent / "place") as found:
        assert found.environ == {"PYTHONPATH": f"{found.place / 'src'}:/elsewhere"}


def test_paths_through_links_lead_to_the_code_of_then(repository, tmp_path):
    (tmp_path / "link").symlink_to(repository)
    (tmp_path / "sub").symlink_to(repository / "sub")
    (tmp_path / "alone.py").symlink_to(repository / "sub" / "model.py")

    with worktree("HEAD", tmp_path / "place") as found:
        there = found.folder / "model.py"
        for place in (tmp_path / "link" / "sub" / "model.py", tmp_path / "sub" / "model.py", tmp_path / "alone.py"):
            assert found.target(str(place)) == str(there)
            assert found.target(f"{place}:build") == f"{there}:build"
            assert found.target(f"-- python {place} --seed 1") == f"-- python {there} --seed 1"


def test_only_paths_of_the_working_tree_are_replaced_wherever_a_value_begins(repository):
    with worktree("HEAD", repository.parent / "place") as found:
        told = found.target(
            f"-- python model.py --a={repository}/x,{repository}/y --b /mnt{repository}/x --c {repository}2/x"
        )

    then = found.place
    assert told == f"-- python model.py --a={then}/x,{then}/y --b /mnt{repository}/x --c {repository}2/x"


@pytest.mark.parametrize(
    "target",
    ["{outside}/model.py", "-- python {outside}/model.py", "-- python ../../outside/model.py", "data/model.py", "json"],
)
def test_code_that_is_not_checked_out_would_race_itself_and_is_refused(target, repository, tmp_path):
    (tmp_path / "outside").mkdir()
    for folder in (tmp_path / "outside", repository / "sub" / "data"):
        (folder / "model.py").touch()

    place = repository / "studies" / "race" / "worktree"
    with worktree("HEAD", place) as found, pytest.raises(UsageError, match="is the same code at"):
        found.target(target.format(outside=tmp_path / "outside"))


@pytest.mark.parametrize("target", ["model.py", "model.py:build", "model", "-- python model.py", "-- python -m model"])
def test_code_that_is_named_from_here_is_that_of_then(target, repository):
    with worktree("HEAD", repository.parent / "place") as found:
        assert found.target(target) == target


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_it_is_gone_after_an_error_and_after_ctrl_c(error, repository):
    def stop():
        raise error

    with pytest.raises(error), worktree("HEAD", repository.parent / "place"):
        stop()

    assert not (repository.parent / "place").exists()
    assert len(git(repository, "worktree", "list")) == 1


@pytest.fixture
def slow(repository, tmp_path):
    """Files that git writes when it begins to check out, that it waits for, and that it writes in the end."""
    (repository / "large.bin").write_text("samples")
    (repository / ".gitattributes").write_text("*.bin filter=slow\n")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "large")
    began, go, ended = tmp_path / "began", tmp_path / "go", tmp_path / "ended"
    git(repository, "config", "filter.slow.smudge",
        f"touch {began}; while [ ! -e {go} ]; do sleep 0.01; done; cat; touch {ended}")  # fmt: skip
    return began, go, ended


def test_ctrl_c_before_git_is_waited_for_lets_it_end(repository, slow, tmp_path, monkeypatch):
    began, go, ended = slow
    waits = itertools.count(1)

    def insist(action):
        if next(waits) == 3:  # two for the revision
            while not began.exists():
                time.sleep(0.01)
            go.touch()
            raise KeyboardInterrupt
        processes.insist(action)

    monkeypatch.setattr("autotune.races.worktree.insist", insist)
    with pytest.raises(KeyboardInterrupt), worktree("HEAD", tmp_path / "place"):
        pass

    assert ended.exists()
    assert not (tmp_path / "place").exists()
    assert len(git(repository, "worktree", "list")) == 1


def test_ctrl_c_while_git_checks_out_leaves_neither_a_worktree_nor_a_git(repository, slow, tmp_path):
    began, go, ended = slow

    def press():
        while not began.exists():
            time.sleep(0.01)
        for _ in range(2):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.1)
        go.touch()

    fingers = threading.Thread(target=press)
    fingers.start()
    with pytest.raises(KeyboardInterrupt), worktree("HEAD", tmp_path / "place"):
        pass

    assert ended.exists()
    fingers.join()
    assert not (tmp_path / "place").exists()
    assert len(git(repository, "worktree", "list")) == 1


def test_an_unknown_revision_is_told_and_leaves_nothing(repository):
    with pytest.raises(UsageError, match="--baseline-commit nonsense cannot"), worktree("nonsense", repository / "x"):
        pass

    assert len(git(repository, "worktree", "list")) == 1


def test_a_folder_that_the_revision_lacks_is_told(repository, monkeypatch):
    (repository / "new").mkdir()
    monkeypatch.chdir(repository / "new")

    with pytest.raises(UsageError, match="new is not in HEAD"), worktree("HEAD", repository.parent / "place"):
        pass

    assert len(git(repository, "worktree", "list")) == 1


def test_outside_of_a_repository_it_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError, match="is in no git repository"), worktree("HEAD", tmp_path / "x"):
        pass
