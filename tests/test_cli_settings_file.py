"""Defaults from files and environment: which value counts is seen from which wrong value is complained about."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from autotune.cli.variables import SWITCHES
from autotune.launch.processes import TAG
from tests.commandline import assert_one_clear_error, listing
from tests.commandline import run_here as run
from tests.fuzz import inprocess
from tests.fuzz.inprocess import target


def search(home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return run(home, "search", "model.py", *words, **more)


def test_the_command_line_wins_over_the_environment(tmp_path: Path) -> None:
    ended = search(tmp_path, "-t", "typed", AUTOTUNE_TIME_BUDGET="exported")

    assert "'typed'" in assert_one_clear_error(ended)


def test_the_environment_wins_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "autotune.toml").write_text('time-budget = "filed"\n')

    ended = search(tmp_path, AUTOTUNE_TIME_BUDGET="exported")

    assert "'exported'" in assert_one_clear_error(ended)


def test_a_file_wins_over_the_default(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.autotune]\ntime-budget = "filed"\n')

    ended = search(tmp_path)

    assert "'filed'" in assert_one_clear_error(ended)


def test_autotune_toml_wins_over_pyproject_beside_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.autotune]\ntime-budget = "shared"\n')
    (tmp_path / "autotune.toml").write_text('time-budget = "own"\n')

    ended = search(tmp_path)

    assert "'own'" in assert_one_clear_error(ended)


def test_the_nearest_file_upwards_counts(tmp_path: Path) -> None:
    (tmp_path / "autotune.toml").write_text('time-budget = "above"\n')
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "pyproject.toml").write_text("[project]\nname = 'no section of ours'\n")

    ended = search(tmp_path / "inner")

    assert "'above'" in assert_one_clear_error(ended)


def test_lists_and_tables_read_like_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "autotune.toml").write_text('batch = [32, 64]\n[fix]\nworkers = 0\namp = "int8"\n')

    ended = search(tmp_path)

    assert "--fix workers=0,amp=int8" in assert_one_clear_error(ended)


@pytest.mark.parametrize("name", ["AUTOTUNE_BATCH", "AUTOTUNE_WORKERS", "AUTOTUNE_AMP", "AUTOTUNE_HEADROOM"])
def test_every_option_has_its_variable(name: str, tmp_path: Path) -> None:
    ended = search(tmp_path, **{name: "nonsense"})

    assert "nonsense" in assert_one_clear_error(ended)


@pytest.mark.parametrize("command", [("search", "model.py"), ("best",), ("doctor",)])
def test_an_unknown_key_is_refused_with_the_nearest_one(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.autotune]\ntime-budgett = "3s"\n')

    ended = run(tmp_path, *command)

    assert "Did you mean time-budget?" in assert_one_clear_error(ended)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (
            'probes = "many"',
            'probes to "many", and it takes a whole number. TOML writes these without quotes. Write probes = 20',
        ),
        ("probes = true", "probes to true, and it takes a whole number"),
        (
            'exact = "yes"',
            'exact to "yes", and it takes true or false. TOML writes these without quotes. Write exact = t',
        ),
        ("amp = false", "amp to false, and it takes a text, a number or a list of them. The option is no switch"),
    ],
)
def test_a_value_of_the_wrong_type_names_file_and_key(line: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "autotune.toml").write_text(f"{line}\n")

    ended = search(tmp_path)

    message = assert_one_clear_error(ended)
    assert f"{tmp_path / 'autotune.toml'} sets {named}" in message
    assert {str(tmp_path / "autotune.toml")} == listing(tmp_path)


@pytest.mark.parametrize("key", ["json", "dry-run", "dry_run", "output", "target"])
def test_an_option_of_one_call_is_said_to_be_no_setting(key: str, tmp_path: Path) -> None:
    (tmp_path / "autotune.toml").write_text(f"{key} = true\n")

    ended = search(tmp_path)

    assert f"sets '{key}', which is an option of the command line only" in assert_one_clear_error(ended)


@pytest.mark.parametrize("value", ["maybe", " yes", "2"])
def test_a_variable_that_is_neither_on_nor_off_is_answered_by_what_is_understood(value: str, tmp_path: Path) -> None:
    message = assert_one_clear_error(search(tmp_path, AUTOTUNE_EXACT=value))

    assert f"The environment sets AUTOTUNE_EXACT to {value!r}, which is neither on nor off." in message
    assert f"Use one of: {', '.join(SWITCHES)}." in message


@pytest.mark.parametrize("value", ["", "TRUE", *SWITCHES])
def test_what_is_said_to_be_understood_is(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    target(tmp_path)

    ended = inprocess.run("search", "model.py", "--dry-run", "--global-batch", "free", AUTOTUNE_EXACT=value)

    is_exact = value.lower() in SWITCHES[:6]
    assert ("--exact holds the global batch" in ended.stderr) is is_exact
    assert ended.returncode == (2 if is_exact else 0), ended.stderr


@pytest.mark.parametrize("command", [("search", "model.py"), ("best",), ("doctor",)])
def test_a_variable_that_is_no_setting_is_refused_with_the_nearest_one(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    ended = run(tmp_path, *command, AUTOTUNE_TIMEBUDGET="33s")

    assert "AUTOTUNE_TIMEBUDGET, which autotune does not know" in assert_one_clear_error(ended)
    assert "Did you mean AUTOTUNE_TIME_BUDGET?" in ended.stderr


def test_what_marks_the_processes_of_a_probe_is_no_setting(tmp_path: Path) -> None:
    assert "There is no study" in assert_one_clear_error(run(tmp_path, "best", **{TAG: "1-2"}))
    assert "Did you mean AUTOTUNE_PROBES?" in run(tmp_path, "best", AUTOTUNE_PROBE="20").stderr


@pytest.mark.parametrize(
    ("file", "variable", "typed", "where"),
    [
        ("", "", "2", "It was probably mistyped. "),
        ("", "2", "", "It stands in the variable AUTOTUNE_TIME_BUDGET. "),
        ("2", "", "", "It stands in {home}/autotune.toml. "),
    ],
)
def test_a_wrong_value_is_said_to_stand_where_it_stands(
    file: str, variable: str, typed: str, where: str, tmp_path: Path
) -> None:
    if file:
        (tmp_path / "autotune.toml").write_text(f"time-budget = {file}\n")

    words = ("-t", typed) if typed else ()
    ended = search(tmp_path, *words, **({"AUTOTUNE_TIME_BUDGET": variable} if variable else {}))

    assert f"--time-budget: '2' has no unit: write 2s for seconds or 2m for minutes. {where.format(home=tmp_path)}" in (
        assert_one_clear_error(ended)
    )


def test_the_settings_of_a_file_that_count_are_announced(tmp_path: Path) -> None:
    (tmp_path / "autotune.toml").write_text('time-budget = "20s"\nseed = 3\nbatch = [8, 16]\ndevice = "cpu"\n')

    searched = search(tmp_path, "-t", "10s", AUTOTUNE_BATCH="8")
    checked = run(tmp_path, "check", "model.py")
    quiet = search(tmp_path, "--quiet")

    announced = f"Settings from {tmp_path / 'autotune.toml'}: "
    assert f"{announced}device, seed\n" in searched.stderr
    assert f"{announced}device\n" in checked.stderr
    assert announced not in quiet.stderr


def test_a_section_that_is_no_section_is_explained(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\nautotune = 3\n")

    ended = search(tmp_path)

    assert "[tool.autotune]" in assert_one_clear_error(ended)


def test_a_broken_autotune_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "autotune.toml").write_text("time-budget = [[\n")

    ended = search(tmp_path)

    assert "autotune.toml is not valid TOML" in assert_one_clear_error(ended)


def test_a_broken_pyproject_is_somebody_elses_matter(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[[[\n")

    ended = run(tmp_path, "best")

    assert "There is no study" in assert_one_clear_error(ended)
