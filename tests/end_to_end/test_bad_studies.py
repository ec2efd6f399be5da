"""Studies that are damaged, in use, or lie where nothing can be written: one clear error, and nothing lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commandline import assert_one_clear_error, listing, processes, run, run_here, start, wait_until
from tests.end_to_end.conftest import SEARCH, Recorded

STUDY = Path("studies", "model")


@contextmanager
def mounted(place: Path, options: str) -> Iterator[None]:
    """A small file system in memory at `place`; skips where this user may not mount one."""
    place.mkdir(parents=True, exist_ok=True)
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can mount a file system of its own")
    done = subprocess.run(("mount", "-t", "tmpfs", "-o", options, "none", str(place)), capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(("umount", "-l", str(place)), check=True)


def probe_results(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("probes/*/result.json")}


@pytest.mark.parametrize(
    ("command", "name"),
    [(command, name) for command in ("show", "best") for name in ("missing", "file", "folder")]
    + [("dashboard", "missing"), ("dashboard", "file")],  # it also serves a folder of studies that is empty yet
)
def test_what_is_no_study_is_said(command: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()

    ended = run_here(tmp_path, command, name)

    assert name in assert_one_clear_error(ended)


@pytest.mark.parametrize("command", ["show", "best"])  # the dashboard waits for the first one
def test_without_any_study_the_next_step_is_said(command: str, tmp_path: Path) -> None:
    ended = run_here(tmp_path, command)

    assert "autotune search" in assert_one_clear_error(ended)


@pytest.mark.parametrize(
    ("file", "commands"),
    [
        ("best.json", ("best", "report")),
        ("study.json", ("show",)),
        ("probes/0000/result.json", ("show",)),
        ("probes/0000/request.json", ("show",)),
    ],
)
def test_a_damaged_file_is_named_and_left_alone(file: str, commands: tuple[str, ...], copy: Path) -> None:
    (copy / STUDY / file).write_text('{"cut')
    before = listing(copy)

    for command in commands:
        ended = run_here(copy, command)

        assert file in assert_one_clear_error(ended)
    assert before == listing(copy)
    assert (copy / STUDY / file).read_text() == '{"cut'


@pytest.mark.parametrize("damage", ["", '{"cut'])
def test_a_damaged_answer_is_made_anew_by_the_search_that_it_names(damage: str, copy: Path) -> None:
    (copy / STUDY / "best.json").write_text(damage)

    messages = [assert_one_clear_error(run_here(copy, *words)) for words in (("best",), ("report",), ("export",))]
    ended = run_here(copy, *SEARCH)

    remedy = "The probes are kept: run the command that searched it once more, and it writes the answer anew."
    assert [remedy in one for one in messages] == [True] * 3
    assert ended.returncode == 0
    assert json.loads(run_here(copy, "best", "--json").stdout)["params"]


def test_a_damaged_answer_without_probes_is_to_be_copied_again(home: Path) -> None:
    (home / STUDY).mkdir(parents=True)
    (home / STUDY / "best.json").write_text('{"cut')

    assert "copy the file again from where it came" in assert_one_clear_error(run_here(home, "best"))


def test_probes_are_shown_without_an_answer_that_is_damaged(copy: Path) -> None:
    whole = run_here(copy, "show").stdout.splitlines()
    (copy / STUDY / "best.json").write_text('{"cut')

    ended = run_here(copy, "show")

    assert ended.returncode == 0
    assert "best.json cannot be read: " in ended.stderr and "it writes the answer anew" in ended.stderr
    first, *table = ended.stdout.splitlines()
    assert first.endswith(" · its answer cannot be read")
    assert [line.split()[:2] for line in table if line] == [line.split()[:2] for line in whole[1:] if line]


def test_a_study_of_which_only_best_json_was_kept_still_answers(recorded: Recorded, home: Path) -> None:
    (home / STUDY).mkdir(parents=True)
    (home / STUDY / "best.json").write_bytes((recorded.study / "best.json").read_bytes())

    best = run_here(home, "best", "--json")
    shown = run_here(home, "show")

    assert recorded.best == json.loads(best.stdout)
    assert "it has best.json and no study.json" in assert_one_clear_error(shown)


@pytest.mark.parametrize("file", ["study.db", "probes/0000/result.json", "study.json"])
def test_a_search_on_a_damaged_study_stops_and_loses_no_probe(file: str, copy: Path) -> None:
    (copy / STUDY / file).write_text("this is not what it was\n" * 400)
    before = probe_results(copy)

    ended = run_here(copy, *SEARCH)

    assert ended.returncode == 2
    assert Path(file).name in ended.stderr.partition("error: ")[2]
    assert "move" in ended.stderr.partition("error: ")[2].lower()
    assert "Traceback" not in ended.stderr
    assert before == probe_results(copy)


def test_a_study_path_that_is_a_file_is_refused_and_the_file_is_kept(home: Path) -> None:
    (home / "notes").write_text("mine")

    ended = run_here(home, *SEARCH, "--study", "notes/deeper")

    assert "notes" in assert_one_clear_error(ended)
    assert (home / "notes").read_text() == "mine"


def test_a_study_of_another_goal_is_not_mixed(copy: Path) -> None:
    before = probe_results(copy)

    ended = run_here(copy, *SEARCH, "--global-batch", "32")

    assert "the held global batch (--global-batch) was 64, is 32" in assert_one_clear_error(ended)
    assert before == probe_results(copy)


@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["words", "json"])
def test_a_dry_run_shows_its_plan_and_ends_as_the_search_would(as_json: tuple[str, ...], copy: Path) -> None:
    before = listing(copy)
    words = (*SEARCH, "--global-batch", "32", "--fix", "amp=none")

    told, searched = run_here(copy, *words, "--dry-run", *as_json), run_here(copy, *words)

    assert told.returncode == searched.returncode == 2
    assert told.stderr == searched.stderr
    assert "the held global batch (--global-batch) was 64, is 32" in told.stderr
    assert "--amp or --fix amp was not given, is none" in told.stderr
    if as_json:
        assert json.loads(told.stdout)["request"]["goal"]["global_batch"] == 32
    else:
        assert "(refused)\n" in told.stdout and "(new)" not in told.stdout
        assert "\nSpace " in told.stdout
    assert before == listing(copy)


def test_a_dry_run_that_is_to_resume_what_is_not_there_ends_as_the_search_would(home: Path) -> None:
    words = (*SEARCH, "--resume")

    told, searched = run_here(home, *words, "--dry-run"), run_here(home, *words)

    assert told.returncode == searched.returncode == 2
    assert told.stderr == searched.stderr
    assert "holds no study that could be resumed" in told.stderr


def test_a_read_only_place_is_exit_status_three(home: Path) -> None:
    with mounted(home / "shelf", "ro"):
        ended = run(home, *SEARCH, "--study", "shelf/study")

    assert "shelf/study" in assert_one_clear_error(ended, status=3)


@pytest.mark.parametrize(
    ("size", "command"),
    [("120k", run_here), ("260k", run)],  # one of them with a process for the command
    ids=["for the database", "for a result"],
)
def test_a_full_disk_is_exit_status_three_and_no_finished_probe_is_lost(
    size: str, command: Callable[..., subprocess.CompletedProcess[str]], home: Path
) -> None:
    with mounted(home / "shelf", f"size={size}"):
        ended = command(home, *SEARCH, "--study", "shelf/study")
        left = probe_results(home / "shelf")

    assert ended.returncode == 3, ended.stderr
    assert ended.stderr.count("error: ") == 1
    assert "--study" in ended.stderr.partition("error: ")[2]
    assert "Traceback" not in ended.stderr
    assert all(json.loads(content) for content in left.values())
    assert processes(home) == []


def test_a_second_search_on_one_study_is_refused_with_the_owner(copy: Path) -> None:
    first = start(copy, *SEARCH)
    wait_until(lambda: (copy / STUDY / "study.lock").read_text() == str(first.pid), "the first took no lock")

    second = run_here(copy, *SEARCH)

    message = assert_one_clear_error(second)
    assert f"process {first.pid}" in message
    assert first.poll() is None
    first.kill()
    first.communicate()
    wait_until(lambda: not processes(copy), "something outlived the search")
