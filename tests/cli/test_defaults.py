"""Defaults from files and environment: which value counts is seen from which wrong value is complained about."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from autotune.cli.defaults import SWITCHES
from autotune.core.probe_tag import TAG
from tests.commandline import assert_one_clear_error, listing
from tests.commandline import run_here as run
from tests.fuzz import inprocess
from tests.fuzz.inprocess import target

FILE, SHARED = "autotune.toml", "pyproject.toml"
COMMANDS = [("search", "model.py"), ("best",), ("doctor",)]


def search(home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return run(home, "search", "model.py", *words, **more)


def refused(home: Path, line: str, file: str = FILE) -> str:
    """The error of a search beside a settings file of this content."""
    (home / file).write_text(line + "\n")
    return assert_one_clear_error(search(home))


@pytest.mark.parametrize(
    ("files", "variable", "typed", "counts", "where"),
    [
        ({FILE: "filed"}, "exported", "typed", "typed", "It was probably mistyped. "),
        ({FILE: "filed"}, "exported", "", "exported", "It stands in the variable AUTOTUNE_TIME_BUDGET. "),
        ({SHARED: "filed"}, "", "", "filed", "It stands in {home}/pyproject.toml. "),
        ({SHARED: "shared", FILE: "own"}, "", "", "own", "It stands in {home}/autotune.toml. "),
        ({FILE: "above", f"inner/{SHARED}": ""}, "", "", "above", "It stands in {home}/autotune.toml. "),
    ],
    ids=["typed", "variable", "file", "autotune.toml before pyproject.toml", "nearest file upwards"],
)
def test_the_nearest_value_counts_and_is_said_to_stand_where_it_stands(
    files: dict[str, str], variable: str, typed: str, counts: str, where: str, tmp_path: Path
) -> None:
    for name, value in files.items():
        section = "[tool.autotune]\n" if name.endswith(SHARED) and value else "[other]\n" if not value else ""
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f'{section}time-budget = "{value}"\n')
    home = tmp_path / "inner" if (tmp_path / "inner").is_dir() else tmp_path

    words = ("-t", typed) if typed else ()
    message = assert_one_clear_error(search(home, *words, **({"AUTOTUNE_TIME_BUDGET": variable} if variable else {})))

    assert f"'{counts}'" in message
    assert where.format(home=tmp_path) in message


def test_lists_and_tables_read_like_the_command_line(tmp_path: Path) -> None:
    assert "--fix workers=0,amp=int8" in refused(tmp_path, 'batch = [32, 64]\n[fix]\nworkers = 0\namp = "int8"')


@pytest.mark.parametrize("name", ["AUTOTUNE_BATCH", "AUTOTUNE_WORKERS", "AUTOTUNE_AMP", "AUTOTUNE_HEADROOM"])
def test_every_option_has_its_variable(name: str, tmp_path: Path) -> None:
    assert "nonsense" in assert_one_clear_error(search(tmp_path, **{name: "nonsense"}))


def test_what_file_and_variables_say_of_workers_fails_no_search_without_a_storage(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('workers-expected = 4\non = "auto"\n')

    for variables in ({}, {"AUTOTUNE_ON": "auto", "AUTOTUNE_WORKERS_EXPECTED": "4"}):
        assert "no file missing.py" in assert_one_clear_error(run(tmp_path, "search", "missing.py", **variables))
    typed = assert_one_clear_error(run(tmp_path, "search", "missing.py", "--workers-expected", "1"))
    assert "--workers-expected 1 waits for workers" in typed


def test_a_number_out_of_bounds_is_said_to_stand_in_the_file(tmp_path: Path) -> None:
    message = refused(tmp_path, "seed = -1")

    assert message.startswith("--seed must be from 0 to 4294967295, got -1. It stands in ")
    assert f"{tmp_path}/autotune.toml" in message and "AUTOTUNE_SEED" not in message


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('probes = "many"', "sets probes to \"many\", and it takes a whole number. TOML writes these without quotes. "
         "Write probes = 20"),
        ("probes = true", "sets probes to true, and it takes a whole number"),
        ('exact = "yes"', "sets exact to \"yes\", and it takes true or false. TOML writes these without quotes. Write "
         "exact = t"),
        ("amp = false", "sets amp to false, and it takes a text, a number or a list of them. The option is no switch"),
        *((f"{key} = true", f"sets '{key}', which is an option of the command line only")
          for key in ("json", "dry-run", "dry_run", "output", "target")),
        ("time-budget = [[", "is not valid TOML"),
    ],
)  # fmt: skip
def test_what_a_file_may_not_say_names_file_and_key(line: str, named: str, tmp_path: Path) -> None:
    assert f"{tmp_path / FILE} {named}" in refused(tmp_path, line)
    assert {str(tmp_path / FILE)} == listing(tmp_path)


def test_a_section_that_is_no_section_is_explained(tmp_path: Path) -> None:
    assert "[tool.autotune]" in refused(tmp_path, "[tool]\nautotune = 3", SHARED)


def test_a_broken_pyproject_is_somebody_elses_matter(tmp_path: Path) -> None:
    (tmp_path / SHARED).write_text("[[[\n")

    assert "There is no study" in assert_one_clear_error(run(tmp_path, "best"))


@pytest.mark.parametrize("command", COMMANDS)
def test_what_no_setting_is_called_is_refused_with_the_nearest_one(command: tuple[str, ...], tmp_path: Path) -> None:
    by_variable = run(tmp_path, *command, AUTOTUNE_TIMEBUDGET="33s")
    (tmp_path / SHARED).write_text('[tool.autotune]\ntime-budgett = "3s"\n')
    by_file = run(tmp_path, *command)

    assert "AUTOTUNE_TIMEBUDGET, which autotune does not know" in assert_one_clear_error(by_variable)
    assert "Did you mean AUTOTUNE_TIME_BUDGET?" in by_variable.stderr
    assert "Did you mean time-budget?" in assert_one_clear_error(by_file)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("AUTOTUNE_JSON", "is an option of the command line only"),
        ("AUTOTUNE_QUITE_ELSE", "`autotune search --help` lists what there is"),
        ("AUTOTUNE_PROBE", "Did you mean AUTOTUNE_PROBES?"),
        (TAG, "There is no study"),  # which marks the processes of a probe
    ],
)
def test_nothing_is_suggested_that_is_not_near(name: str, said: str, tmp_path: Path) -> None:
    message = assert_one_clear_error(run(tmp_path, "best", **{name: "1-2"}))

    assert said in message
    assert ("Did you mean" in message) is said.startswith("Did you mean")


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


@pytest.mark.slow
def test_the_settings_of_a_file_that_count_are_announced(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('time-budget = "20s"\nseed = 3\nbatch = [8, 16]\ndevice = "cpu"\n')

    searched = search(tmp_path, "-t", "10s", AUTOTUNE_BATCH="8")
    checked = run(tmp_path, "check", "model.py")
    quiet = search(tmp_path, "--quiet")

    announced = f"Settings from {tmp_path / FILE}: "
    assert f"{announced}device, seed\n" in searched.stderr
    assert f"{announced}device\n" in checked.stderr
    assert announced not in quiet.stderr
