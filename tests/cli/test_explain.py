"""`autotune explain --measure`: what fits into the time budget, and what it says where nothing can be measured."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import EnvironmentUnfit
from tests.commandline import assert_one_clear_error, run_here

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "studies" / "digits_cnn-epyc-minute"
TARGET = Path("examples") / "digits_cnn.py"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a study, searched from there, and its target."""
    shutil.copytree(STUDY, tmp_path / "studies" / "cnn")
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / TARGET, tmp_path / TARGET)
    return tmp_path


def test_what_takes_longer_than_the_time_budget_is_said_and_not_begun(home: Path) -> None:
    def launcher(**given: Any) -> None:
        asked.update(given)
        raise EnvironmentUnfit("As far as this. It is a test. Go no further.")

    asked: dict[str, Any] = {}
    told = run_here(home, "explain", "cnn", "--measure", "-t", "25s", launcher=launcher).stderr

    assert "Measuring 5 settings against the recommendation: about 19 s for 2 rounds, and up to 25 s" in told
    assert "There is no time for compile default instead of no (about 98 s alone). All 6 need --time-budget 3m." in told
    assert asked["isolation"] == "fork"  # as its probes were: fresh interpreters take longer than those did


def test_a_time_budget_that_is_too_short_for_any_setting_is_an_error_with_numbers(home: Path) -> None:
    ended = run_here(home, "explain", "cnn", "--measure", "-t", "5s")

    message = assert_one_clear_error(ended)
    assert message.startswith("--time-budget 5.0 s is too short to measure any setting: workers 1 instead of 0 ")
    assert "takes about 8.5 s" in message
    assert "Use --time-budget 10s for it, or --time-budget 3m for all 6." in message
    assert not (home / "studies" / "cnn" / "explain").exists()


def test_called_from_another_folder_it_names_the_file_and_where_to_go(home: Path, tmp_path: Path) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()

    ended = run_here(elsewhere, "explain", "../studies/cnn", "--measure")

    message = assert_one_clear_error(ended)
    assert "There is no file examples/digits_cnn.py" in message
    assert "race" not in message
    assert message.endswith(f"cd {home} && autotune explain {home / 'studies' / 'cnn'} --measure")
    assert not (home / "studies" / "cnn" / "explain").exists()


def test_a_file_that_was_deleted_since_is_said_where_the_study_lies_under_this_folder(home: Path) -> None:
    (home / TARGET).rename(home / TARGET.with_name("digits_cnn2.py"))

    ended = run_here(home, "explain", "cnn", "--measure")

    message = assert_one_clear_error(ended)
    assert "There is no file examples/digits_cnn.py. It was probably deleted or moved since it was searched" in message
    assert message.endswith("Put it back, or search again.")
    assert "another folder" not in message and "Did you mean" not in message
