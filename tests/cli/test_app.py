"""What holds for every command: how it ends when autotune itself is at fault, and where its output can go."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from autotune.cli.options import KNOB_PANEL
from autotune.knobs import OURS
from autotune.knobs.parsing import option
from autotune.preparation.settings import MEASURING
from tests.commandline import COMMAND, assert_one_clear_error, environment, run, run_here

pytestmark = pytest.mark.slow  # the command as a process of its own

SHADOWING = ("ssl.py", "random.py", "types.py")


def test_files_beside_the_command_that_are_called_as_modules_of_python_are_the_users(tmp_path: Path) -> None:
    for name in SHADOWING:
        (tmp_path / name).write_text("raise SystemExit('the file of the user was imported')\n")

    words = (sys.executable, "-m", "autotune", "search", "--help")
    ended = subprocess.run(words, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr
    assert "the file of the user" not in ended.stdout + ended.stderr


AT_FAULT = """
import sys
from autotune.study import disk
from autotune.cli import main

def find(name):
    raise {raised}

disk.find = find
import autotune.study.recommendation
autotune.study.recommendation.find = find
sys.argv = ["autotune", "best", "my study"]
main()
"""


def _failing(home: Path, raised: str) -> subprocess.CompletedProcess[str]:
    program = AT_FAULT.format(raised=raised)
    return subprocess.run(
        [sys.executable, "-c", program], cwd=home, env=environment(home), capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "words",
    [
        ("search", "model.py", "--study", "a", "--study=b"),
        ("search", "model.py", "-t", "60s", "--time-budget", "2m"),
        ("profile", "model.py", "--device", "cpu", "--device", "cuda"),
    ],
)
def test_an_option_that_is_typed_twice_is_refused_and_not_dropped(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "model.py").touch()

    ended = run_here(tmp_path, *words)

    assert_one_clear_error(ended)
    assert "is given 2 times, and only the last would count." in ended.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("search", "model.py", "--fix", "thread=1", "-t", "60s", "--fix=workers=0"), "no knob 'thread'"),
        (("search", "model.py", "--fix=workers=0", "-t", "60s", "--fix", "thread=1"), "no knob 'thread'"),
        (("search", "model.py", "--fix", "workers=0", "--fix", "workers=2"), "num_workers is given twice"),
        (("profile", "model.py", "-c", "worker=1", "--config", "batch=8"), "no knob 'worker'"),
        (("search", "--map", "bf=--amp", "--map", "batch=-b", "--", "python", "train.py", "-b", "8"), "no knob bf"),
        (("search", "model.py", "--fix", "workers=0", "--fix"), "--fix"),
    ],
)
def test_pairs_that_are_typed_one_by_one_are_those_of_one_list(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "model.py").touch()
    (tmp_path / "train.py").touch()

    ended = run_here(tmp_path, *words)

    assert_one_clear_error(ended)
    assert said in ended.stderr


def test_options_behind_the_dashes_are_the_scripts_own(tmp_path: Path) -> None:
    ended = run_here(tmp_path, "search", "--seed", "1", "--", "python", "none.py", "--seed", "2", "--seed", "3")

    assert "is given" not in ended.stderr


def test_a_fault_of_autotune_itself_has_a_status_of_its_own_and_says_what_to_report(tmp_path: Path) -> None:
    ended = _failing(tmp_path, 'ValueError("no such thing\\nas this")')

    assert ended.returncode == 70  # EX_SOFTWARE; 1 would mean that a search ran and found nothing usable
    assert ended.stdout == ""
    first, *rest = ended.stderr.splitlines()
    assert first.startswith("error: autotune itself failed: ValueError: no such thing. ")
    assert "report" in first
    assert rest[0].startswith("version: autotune ")
    assert rest[1] == "command: autotune best 'my study'"
    assert rest[2] == "Traceback (most recent call last):"
    assert rest[-2:] == ["ValueError: no such thing", "as this"]


def test_ctrl_c_is_no_fault(tmp_path: Path) -> None:
    assert _failing(tmp_path, "KeyboardInterrupt").returncode == 130


def test_help_of_search_shows_the_knobs_below_a_heading_of_their_own_and_last() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "autotune", "search", "--help"], capture_output=True, text=True, check=True
    ).stdout

    headings = [line.rstrip(":") for line in told.splitlines() if line[:1].isalpha() and line.endswith(":")]
    common, knobs = told.partition(headings[2])[0], told.partition(KNOB_PANEL)[2]
    assert headings == ["Arguments", "Options", MEASURING, "Several machines", "Output", KNOB_PANEL]
    assert [one.name for one in OURS if f"{option(one.name)} " not in knobs] == []
    assert all(f"{one} " in common for one in ("--time-budget", "--baseline", "--global-batch", "--fix", "--help"))


def test_help_lists_every_exit_status() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "autotune", "--help"], capture_output=True, text=True, check=True
    ).stdout

    for status in ("0 ", "1 ", "2 ", "3 ", "70 ", "130 "):
        assert status in told.partition("Exit status:")[2]


RECORDED = Path(__file__).parents[2] / "studies" / "digits_cnn-xeon"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("command", ["best", "show", "export", "compare", "best --json"])
def test_an_answer_arrives_at_a_terminal_that_has_no_letter_for_all_of_it(
    command: str, encoding: str, tmp_path: Path
) -> None:
    name, *more = command.split()
    studies = [str(RECORDED)]
    if name == "compare":
        studies += [str(shutil.copytree(RECORDED, tmp_path / "other"))]

    plain = run_here(tmp_path, name, *studies, *more)
    narrow = subprocess.run(
        (*COMMAND, name, *studies, *more), env=environment(tmp_path, PYTHONIOENCODING=encoding), cwd=tmp_path,
        encoding=encoding, capture_output=True, check=False,
    )  # fmt: skip

    assert narrow.returncode == plain.returncode == 0, narrow.stderr
    assert len(narrow.stdout.splitlines()) == len(plain.stdout.splitlines())


def test_a_name_that_is_not_utf_8_can_be_complained_of(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    shutil.copytree(RECORDED, folder)

    shown, missing = (run(tmp_path, "show", name) for name in (folder.name, f"{folder.name}x"))

    assert shown.returncode == 0, shown.stderr
    assert "does not exist" in assert_one_clear_error(missing)


@pytest.mark.parametrize("command", ["check", "search"])
def test_a_target_that_is_not_utf_8_is_refused(command: str, tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.py")).write_text("raise AssertionError('not looked at')\n")

    ended = run(tmp_path, command, os.fsdecode(b"caf\xe9.py"))

    assert "is not UTF-8 text" in assert_one_clear_error(ended)
    assert len(list(tmp_path.iterdir())) == 1


def test_the_version_is_told_without_a_command(tmp_path: Path) -> None:
    ended = run(tmp_path, "--version")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.strip() == version("torch-autotune")


@pytest.mark.parametrize("name", ["search", "check"])
def test_an_argument_of_a_script_that_is_no_option_is_told_where_it_goes(tmp_path: Path, name: str) -> None:
    ended = run_here(tmp_path, name, "train cls.py", "--lr", "64")

    assert assert_one_clear_error(ended).endswith(f"autotune {name} -- python 'train cls.py' --lr 64")


def test_the_word_for_a_missing_target_is_that_of_the_command(tmp_path: Path) -> None:
    assert "autotune check model.py" in run_here(tmp_path, "check").stderr


def test_a_name_with_a_space_is_quoted_where_it_is_to_be_typed(tmp_path: Path) -> None:
    assert "autotune init 'my model.py'" in run_here(tmp_path, "init", "my model").stderr
    assert "autotune check 'my model.py'" in run_here(tmp_path, "init", "my model.py").stdout


def test_a_working_folder_that_was_removed_is_said(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    started = f"cd {home} && rmdir {home} && exec {sys.executable} -m autotune best"

    ended = subprocess.run(
        ["/bin/sh", "-c", started], env=environment(tmp_path), capture_output=True, text=True, check=False
    )

    assert ended.returncode == 3
    assert ended.stderr.startswith("error: The folder that you are in no longer exists.")


def test_an_answer_for_a_folder_that_is_not_there_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    ended = run_here(tmp_path, "search", str(Path("examples/digits_cnn.py").resolve()), "-o", "nosuch/best.json")

    assert_one_clear_error(ended)
    assert "there is no folder nosuch" in ended.stderr
    assert not (tmp_path / "studies").exists()


@pytest.mark.parametrize("what", ["missing", "empty", "foreign"])
def test_all_commands_say_the_same_of_what_is_no_study(tmp_path: Path, what: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "notes.md").touch()

    commands = ("show", what), ("best", what), ("report", what), ("export", what), ("compare", what, what)
    told = {assert_one_clear_error(run_here(tmp_path, *words)) for words in commands}

    assert len(told) == 1, told
