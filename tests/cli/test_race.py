"""`autotune race`: what it prints, and the exit status that a pipeline goes by."""

import json
import re
from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace

from autotune.api import race as real
from autotune.core.probe_tag import TAG
from autotune.core.records import Config, Declaration
from autotune.errors import RaceFailed, UsageError
from benchmarks.race_power import simulated
from tests.commandline import assert_one_clear_error, run_here
from tests.worlds import config


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return simulated(tmp_path_factory.mktemp("race") / "race", [0.05])


def told(home, result, *words):
    with mock.patch("autotune.api.race", return_value=result) as race:
        return run_here(home, "race", "a.py", "b.py", *words), race


@pytest.mark.parametrize(
    ("verdict", "status", "said"),
    [
        ("faster", 0, "other0.py trains faster than base.py: 0.9"),
        ("as fast", 0, "other0.py trains as fast as base.py, within the tolerance of 2%: 0.9"),
        ("slower", 1, "other0.py trains slower than base.py: 0.9"),
        ("undecided", 2, "It is undecided whether other0.py is faster or slower than base.py by more than 2%: 0.9"),
    ],
)
def test_the_verdict_is_the_first_line_and_the_exit_status(verdict, status, said, result, tmp_path):
    base, other = result.standings

    ended, _ = told(tmp_path, replace(result, standings=(base, replace(other, verdict=verdict))))

    assert ended.returncode == status, ended.stderr
    assert ended.stdout.startswith(said)
    assert "baseline" in ended.stdout


def test_what_other_work_leaves_open_is_not_asked_as_faster_or_slower(result, tmp_path):
    base, other = result.standings
    other = replace(other, verdict="undecided", beside_others=True, ratio=2.406, ratio_low=1.896, ratio_high=3.055)

    ended, _ = told(tmp_path, replace(result, standings=(base, other)))

    assert ended.stdout.startswith("Other work slowed other0.py or base.py, so which one is faster is undecided: ")
    assert "measured 2.406× (1.896 to 3.055)" in " ".join(ended.stdout.split())


def test_contestants_with_other_updates_are_told(result, tmp_path):
    base, other = result.standings
    other = replace(other, config=config(64), global_batch_size=64)

    ended, _ = told(tmp_path, replace(result, standings=(base, other)))

    assert "Rates are per sample; the updates differ: there is one after 32 and 64 samples." in ended.stdout


def test_races_of_different_models_are_told(result, tmp_path):
    base, other = (replace(one, model="Net", parameter_count=1000) for one in result.standings)
    others = [replace(other, model="Mlp"), replace(other, parameter_count=2000), other, replace(other, model="")]

    said = [told(tmp_path, replace(result, standings=(base, one)))[0].stdout for one in others]

    assert "! What is trained differs" in said[0]
    assert "base.py: Net, 1,000 parameters; other0.py: Mlp, 1,000 parameters." in said[0]
    assert ["What is trained" in one for one in said] == [True, True, False, False]


@pytest.mark.parametrize("form", ["{}.py", "sub/{}.py:make", "-- python {}.py --lr 1"])
def test_two_copies_of_a_file_whose_model_is_named_after_it_train_the_same(form, result, tmp_path):
    base, other = (
        replace(one, target=form.format(name), model=name, parameter_count=1000)
        for one, name in zip(result.standings, ("old", "new"), strict=True)
    )
    larger = replace(other, parameter_count=2000)

    same, not_same = (told(tmp_path, replace(result, standings=(base, one)))[0].stdout for one in (other, larger))

    assert "What is trained differs" not in same
    assert f"{base.label}: 1,000 parameters; {other.label}: 2,000 parameters." in not_same


def test_settings_of_a_knob_of_the_users_own_are_told_apart(result, tmp_path):
    declared = (Declaration(name="act", values=("relu", "tanh"), default="relu", takers=("model",)),)
    base, other = (
        replace(one, config=Config(values={**one.config.values, "act": act}))
        for one, act in zip(result.standings, ("relu", "tanh"), strict=True)
    )

    ended, _ = told(tmp_path, replace(result, standings=(base, other), declared=declared))

    assert "act relu" in ended.stdout
    assert "act tanh" in ended.stdout


def test_labels_and_numbers_are_whole_however_long_the_labels_are(result, tmp_path):
    commands = [f"python train.py --data /mnt/data/{'imagenet' * 9} --workers 4 --seed {seed}" for seed in (1, 2)]
    named = [replace(one, label=label) for one, label in zip(result.standings, commands, strict=True)]

    ended, _ = told(tmp_path, replace(result, standings=tuple(named)))

    lines = ended.stdout.splitlines()
    first, second = (lines.index(f"  {command}") for command in commands)
    assert re.fullmatch(r"    [\d,.]+ samples/s  ± \S+ +baseline +\S.*", lines[first + 1])
    assert re.fullmatch(r"    [\d,.]+ samples/s  ± \S+ +0\.\d+× \(0\.\d+ to 0\.\d+\)  \S.*", lines[second + 1])


def test_probes_with_interference_are_told(result, tmp_path):
    rounds = sum(len(one.rounds) for one in result.standings)

    ended, _ = told(tmp_path, replace(result, probes=rounds + 2, with_interference=2))
    single, _ = told(tmp_path, replace(result, probes=rounds, with_interference=2))

    said = (
        f"2 of {rounds + 2} probes had interference: other processes used the machine. Where there was time they were "
        "repeated"
    )
    assert said in ended.stdout
    assert "None was repeated, for lack of time or of a quiet machine: all of them count." in single.stdout


def test_json_is_the_result(result, tmp_path):
    ended, _ = told(tmp_path, result, "--json")

    assert json.loads(ended.stdout)["standings"][1]["verdict"] == "slower"
    assert ended.returncode == 1


def test_what_was_typed_is_what_is_raced(result, tmp_path):
    words = ("-c", "batch=64", "-c", "amp=bf16", "--baseline-commit", "main", "--rounds", "5", "--folder", "kept")

    _, race = told(tmp_path, result, *words)

    assert race.call_args.args == ("a.py", "b.py")
    assert race.call_args.kwargs["configs"] == [{"batch_size": 64}, {"amp_dtype": "bfloat16"}]
    assert race.call_args.kwargs["baseline_commit"] == "main"
    assert race.call_args.kwargs["rounds"] == 5
    assert race.call_args.kwargs["folder"] == Path("kept")


def test_a_contestant_that_fails_has_a_status_of_its_own(tmp_path):
    failed = RaceFailed("b.py failed. It is broken. Mend it.", traceback="of the user")

    with mock.patch("autotune.api.race", side_effect=failed):
        ended = run_here(tmp_path, "race", "a.py", "b.py")

    assert_one_clear_error(ended, status=3)
    assert "of the user" in ended.stderr


def test_mistakes_are_told_before_anything_runs(tmp_path):
    (tmp_path / "a.py").write_text("def model(): ...\n")

    assert "two contestants" in assert_one_clear_error(run_here(tmp_path, "race", "a.py"))
    assert "b.py" in assert_one_clear_error(run_here(tmp_path, "race", "a.py", "b.py"))
    for words, said in (
        (("--tolerance", "much"), "--tolerance: 'much' is not a share"),
        (("--tolerance", "0%"), "--tolerance must be in (0, 1), got 0.0. It was probably mistyped."),
        (("--rounds", "1"), "--rounds must be at least 2, got 1"),
    ):
        assert said in assert_one_clear_error(run_here(tmp_path, "race", "a.py", "a.py", *words))
    assert [path.name for path in tmp_path.iterdir()] == ["a.py"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (
            "-t 9s -- python a.py --epochs 9 -- python a.py --bf16",
            '-t 9s "python a.py --epochs 9" "python a.py --bf16"',
        ),
        ("python a.py --epochs 9 python a.py -t 9s", '-t 9s "python a.py --epochs 9" "python a.py"'),
        ("a.py torchrun --nproc-per-node 2 a.py", 'a.py "torchrun --nproc-per-node 2 a.py"'),
        ("-- a.sh -- a.sh --bf16", '"a.sh" "a.sh --bf16"'),
    ],
)
def test_quotes_forgotten_around_a_command_are_put_in_its_line(typed, meant, tmp_path):
    (tmp_path / "a.py").write_text("epochs = '--epochs'\n")

    said = assert_one_clear_error(run_here(tmp_path, "race", *typed.split()))

    assert said.endswith(f"Put each in quotes: autotune race {meant}")


@pytest.mark.parametrize("typed", ["-- a.py b.py", "torchrun other", "-o python a.py b.py", "a.py python"])
def test_what_is_no_command_without_quotes_is_raced(typed, result, tmp_path):
    (tmp_path / "studies" / "torchrun").mkdir(parents=True)

    with mock.patch("autotune.api.race", return_value=result) as race:
        run_here(tmp_path, "race", *typed.split())

    assert len(race.call_args.args) == 2


def test_a_mistyped_knob_is_told_in_python_too():
    with pytest.raises(UsageError, match=r"configs: there is no knob 'bacth'.* Did you mean batch\?"):
        real("a.py", configs=[{"bacth": 64}])


def test_a_race_within_a_probe_is_refused(monkeypatch):
    monkeypatch.setenv(TAG, "1")

    with pytest.raises(UsageError, match=r"autotune\.race\(\) was called in a probe"):
        real("a.py", "b.py")
