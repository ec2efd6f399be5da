"""One search to its recommendation, and everything that the other commands say of it: one set of numbers everywhere."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.harmless import python
from autotune.knobs import defaults
from autotune.units import format_rate
from tests.commandline import COMMAND, environment, listing, processes, run, run_here, start_on_terminal, wait_until
from tests.end_to_end.conftest import Recorded

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def on_a_terminal(home: Path, columns: int, *words: str, **more: str) -> str:
    """What the command writes to a pseudo-terminal of that width."""
    process, master = start_on_terminal(home, columns, *words, **more)
    written = b""
    while select.select([master], [], [], 60)[0]:
        try:
            chunk = os.read(master, 4096)
        except OSError:  # Linux ends a pseudo-terminal so
            break
        written += chunk
    os.close(master)
    assert process.wait() == 0
    return written.decode()


def numbers(text: str) -> list[str]:
    return re.findall(r"\d[\d,]*(?:\.\d+)?", ESCAPE.sub("", text))


def test_only_json_is_on_standard_output_and_it_is_what_best_json_says(recorded: Recorded) -> None:
    told = json.loads(recorded.ended.stdout)

    assert recorded.best == told
    assert (recorded.study / "best.json").read_text() == recorded.ended.stdout
    assert (recorded.home / "copy.json").read_text() == recorded.ended.stdout


def test_progress_goes_to_standard_error_in_plain_lines(recorded: Recorded) -> None:
    lines = recorded.ended.stderr.splitlines()

    assert lines[0].startswith("autotune ")
    assert recorded.best["probes"] == len([line for line in lines if re.match(r" *\d+ +\d+×\d+ ", line)])
    assert "\x1b" not in recorded.ended.stderr
    assert "\r" not in recorded.ended.stderr


def test_nothing_is_written_outside_the_study_and_the_named_file(recorded: Recorded) -> None:
    studies = recorded.home / "studies"

    outside = {path for path in recorded.after if not Path(path).is_relative_to(recorded.study)}

    assert recorded.before | {str(studies), str(recorded.home / "copy.json")} == outside


def test_no_process_is_left(recorded: Recorded) -> None:
    assert processes(recorded.home) == []


def test_the_recommendation_was_itself_run_and_more_than_once_if_anything_raced_it(recorded: Recorded) -> None:
    best = recorded.best
    confirmed = next(c for c in best["confirmations"] if c["config"]["values"] == best["params"])

    for number in confirmed["trials"]:
        probe = recorded.study / "probes" / f"{number:04d}"
        assert json.loads((probe / "request.json").read_text())["config"]["values"] == best["params"]
        assert json.loads((probe / "result.json").read_text())["outcome"] == "ok"
    asked = [json.loads(path.read_text()) for path in recorded.study.glob("probes/*/request.json")]
    again = [one for one in asked if one["purpose"] == "confirm" and one["config"]["values"] == best["params"]]
    assert confirmed["trials"]
    assert len(again) >= (2 if best["runners_up"] else 1)  # some may not count: interference


def test_best_says_the_values_of_best_json(recorded: Recorded) -> None:
    params = recorded.best["params"]

    told = run_here(recorded.home, "best", "--verbose").stdout

    usual = " ".join(told.partition(" as torch has it: ")[2].split())  # names that need no value
    assert {name: value for name, value in params.items() if value != defaults()[name]}.keys().isdisjoint(usual)
    untold = [name for name, value in params.items() if f" {name}: {python(value)}\n" not in told]
    assert untold == [name for name in untold if name in usual and params[name] == defaults()[name]]


def test_best_says_the_rate_of_best_json(recorded: Recorded) -> None:
    told = run_here(recorded.home, "best", "studies/model").stdout

    assert f" {format_rate(recorded.best['samples_per_second'])} samples/s" in told


def test_best_by_name_prints_one_value(recorded: Recorded) -> None:
    by_alias = run_here(recorded.home, "best", "--key", "batch")
    as_json = run_here(recorded.home, "best", "model", "--json")

    assert f"{recorded.best['params']['batch_size']}\n" == by_alias.stdout
    assert recorded.best == json.loads(as_json.stdout)


def test_show_lists_every_probe_with_the_rate_that_was_measured(recorded: Recorded) -> None:
    rows = json.loads(run_here(recorded.home, "show", "--json").stdout)
    text = run_here(recorded.home, "show").stdout

    assert recorded.best["probes"] == len(rows)
    assert "finished" in text.splitlines()[0]
    for row in rows:
        measured = row["trial"]["result"]["measurement"]
        assert row["samples_per_second"] == pytest.approx(sum(measured["samples"]) / sum(measured["step_seconds"]))
        assert (recorded.home / row["log"]).is_file()
        assert re.search(rf"^ *{row['trial']['number']} ", text, re.MULTILINE)


def test_show_failed_finds_none_where_none_failed(recorded: Recorded) -> None:
    ended = run_here(recorded.home, "show", "--failed")

    assert "no probe failed" in ended.stdout
    assert json.loads(run_here(recorded.home, "show", "--failed", "--json").stdout) == []


@pytest.mark.parametrize("words", [("best",), ("show",), ("show", "--failed")])
def test_plain_pipes_carry_no_escape_bytes(words: tuple[str, ...], recorded: Recorded) -> None:
    ended = run(recorded.home, *words)

    assert ended.returncode == 0
    assert ended.stderr == ""
    assert "\x1b" not in ended.stdout


@pytest.mark.parametrize("columns", [60, 120])
@pytest.mark.parametrize("words", [("best", "--verbose"), ("show",)])  # all warnings, at any width
def test_a_terminal_truncates_no_number(words: tuple[str, ...], columns: int, recorded: Recorded) -> None:
    shown = on_a_terminal(recorded.home, columns, *words)
    piped = run_here(recorded.home, *words).stdout

    assert set(numbers(shown)) <= set(numbers(piped))
    for rate in re.findall(r" ([\d,.]+) +(?:[\d.]+%|–) ", piped):
        assert rate in numbers(shown)


def test_no_color_leaves_a_terminal_without_colours(recorded: Recorded) -> None:
    coloured = on_a_terminal(recorded.home, 120, "show")
    plain = on_a_terminal(recorded.home, 120, "show", NO_COLOR="1")

    assert re.search(r"\x1b\[[0-9;]*3[0-7]m", coloured) or "\x1b[2m" in coloured
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", plain)
    assert numbers(coloured) == numbers(plain)


def test_a_dry_run_says_the_space_and_writes_nothing(home: Path) -> None:
    before = listing(home)

    told = run_here(home, "search", "model.py", "--dry-run", "--batch", "16:64", AUTOTUNE_TIME_BUDGET="90s")

    assert told.returncode == 0, told.stderr
    assert "batch 16, 32, 64" in told.stdout
    assert "budget 90 s" in told.stdout
    assert before == listing(home)


def test_a_dry_run_says_of_a_time_budget_that_is_too_short_which_is_not(home: Path) -> None:
    told = run_here(home, "search", "model.py", "--dry-run", "--time-budget", "2s")

    assert told.returncode == 0, told.stderr
    assert "The time budget of 2.0 s is short: a probe takes about" in told.stdout
    assert "Use --time-budget" in told.stdout


def test_a_dry_run_calls_no_study_new_where_none_can_be_written(home: Path) -> None:
    told = run_here(home, "search", "model.py", "--dry-run", "--study", "/proc/study")

    assert told.returncode == 3
    assert "study /proc/study (refused)" in told.stdout
    assert "/proc/study cannot be written: " in told.stderr


def test_a_dry_run_in_json_lists_the_configurations(home: Path) -> None:
    (home / "autotune.toml").write_text('batch = [32, 64]\nprobes = 3\ntime-budget = "20s"\n[fix]\nworkers = 0\n')

    told = run_here(home, "search", "model.py", "--dry-run", "--json")

    plan = json.loads(told.stdout)
    assert {32, 64} == {values["batch_size"] for values in plan["configurations"]}
    assert {64} == {c["batch_size"] * c["gradient_accumulation_steps"] for c in plan["configurations"]}
    assert told.stderr == f"Settings from {home / 'autotune.toml'}: time-budget, probes, fix, batch\n"


@pytest.fixture(scope="module")
def dashboard(recorded: Recorded) -> Iterator[str]:
    """The address of a dashboard at work, which Ctrl-C stops in the end."""
    server = subprocess.Popen(
        (*COMMAND, "dashboard", "studies/model", "--port", "0"),
        cwd=recorded.home,
        env=environment(recorded.home),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    yield next(word for word in server.stdout.readline().split() if word.startswith("http://127.0.0.1:"))
    server.send_signal(signal.SIGINT)
    assert server.wait(30) == 0
    server.stdout.close()
    wait_until(lambda: not processes(recorded.home), "the dashboard is still there")


def test_the_dashboard_serves_the_study_on_a_free_port(recorded: Recorded, dashboard: str) -> None:
    with urllib.request.urlopen(dashboard, timeout=30) as answer:
        page = answer.read().decode()

    assert answer.status == 200
    assert "<svg" in page
    assert f"{format_rate(recorded.best['samples_per_second'])} samples/s" in page


def test_the_dashboard_serves_the_log_of_a_probe(dashboard: str) -> None:
    with urllib.request.urlopen(f"{dashboard}probes/0000/log.txt", timeout=30) as answer:
        assert answer.status == 200
