"""Several ranks on the CPU, from the command line to the answer, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.profile.measuring.passes import OF_RANKS
from autotune.races import race_run
from tests.commandline import PROBE_BUDGET, SHORTEST, TARGET, assert_one_clear_error, processes, run, run_here

RANKS_SEARCH = ("search", "model.py", "--ranks", "2", "-n", "1", "-t", "5m")


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study of two ranks."""
    home = tmp_path_factory.mktemp("ranks")
    (home / "model.py").write_text(TARGET)
    done = run(home, *RANKS_SEARCH, "--json", program=SHORTEST)
    assert done.returncode == 0, done.stderr
    assert processes(home) == []
    assert "· 2 ranks (gloo)" in done.stderr
    assert "Hold  global batch 128, of 2 ranks (64 on each)" in done.stderr
    return home


def test_the_answer_counts_all_ranks(searched):
    best = json.loads((searched / "studies/model/best.json").read_text())

    assert best["facts"]["ranks"] == 2
    assert best["global_batch_size"] == 128
    assert 2 * best["params"]["batch_size"] * best["params"]["gradient_accumulation_steps"] == 128
    trials = [json.loads(path.read_text()) for path in searched.glob("studies/model/probes/*/result.json")]
    assert trials and all(len(one["measurement"]["ranks"]) == 2 for one in trials if one["measurement"])


def test_the_export_says_how_many_ranks_and_how_to_start_them(searched):
    told = run_here(searched, "export", "model", "--to", "torch").stdout

    assert "# Global batch 128 on 2 ranks, as measured." in told
    assert "torchrun --nproc-per-node 2" in told


def test_a_study_of_ranks_goes_on_with_as_many_only(searched):
    message = assert_one_clear_error(run_here(searched, "search", "model.py", "-t", "1m"))

    assert "the number of ranks (--ranks, --devices) was 2, is 1" in message


def test_a_study_of_ranks_is_profiled_with_as_many(searched):
    told = run_here(searched, "profile", "model")

    assert told.returncode == 0, told.stderr
    assert " of 2: " in told.stdout.splitlines()[0]
    assert OF_RANKS in told.stderr


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("search", "model.py", "--ranks", "2", "--global-batch", "33"), "Give --global-batch a multiple of 2"),
        (("search", "--ranks", "2", "--", "python", "model.py"), "write them there: -- torchrun"),
        (("search", "model.py", "--devices", "2,2"), "different positions such as 0,2"),
        (("check", "model.py", "--ranks", "2", "--memory"), "Leave --memory and --memory-limit out"),
        (("scale", "model.py", "--ranks", "1,3"), "3 ranks cannot share it"),
        (("scale", "model.py", "--ranks", "2"), "two numbers of ranks or more"),
    ],
)
def test_what_ranks_cannot_do_is_one_clear_error(home, words, remedy):
    told = run_here(home, *words)

    assert remedy in told.stderr
    assert told.returncode == 2


def test_check_takes_a_step_with_all_ranks(home):
    told = run_here(home, "check", "model.py", "--ranks", "2")

    assert told.returncode == 0, told.stderr
    assert "hold global batch 128, of 2 ranks (64 on each)" in told.stdout


def test_the_efficiency_of_ranks_is_a_table(home, monkeypatch):
    monkeypatch.setattr(race_run, "BRIEF", PROBE_BUDGET)
    monkeypatch.setattr(race_run, "interference_causes", lambda _: ())
    monkeypatch.setattr("autotune.tuning.probing.interference_causes", lambda _: ())

    told = run_here(home, "scale", "model.py", "--ranks", "1,2", "--rounds", "2", "-o", "curve")

    assert told.returncode == 0, told.stderr
    assert "with the global batch of 64 held" in told.stdout
    assert [line.split()[:2] for line in told.stdout.splitlines() if "×" in line] == [["1", "64×1"], ["2", "32×1"]]
