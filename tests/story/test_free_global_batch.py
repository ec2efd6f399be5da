"""Where the global batch is free: the knee of the curve, and the fastest without a change, on known machines."""

import json

import pytest

from autotune.core.codes import Code
from autotune.core.records import Config, Limit
from autotune.errors import NoRecommendation
from autotune.report.answer import sentences
from autotune.report.page import render
from autotune.sampler.space import build
from autotune.study import disk
from autotune.study.recommendation import at_global_batch, load_best, load_result
from autotune.study.view import load_view
from autotune.testing import FakeLauncher, Machine
from tests.commandline import run_here
from tests.worlds import GIB, Listener, declared, facts, searched

DTYPES = (None, "bfloat16", "float16")
FAST_LOADER = {"sample_loading_seconds": 1e-6, "per_sample_bytes": dict.fromkeys(DTYPES, 0.003 * GIB)}
LONG = {"time_budget_seconds": 1e4}


def machine(fixed_milliseconds):
    """A machine whose computing is half as fast as it can be with as many samples as milliseconds * 5."""
    fixed = {
        None: fixed_milliseconds / 1000 * 2,
        "bfloat16": fixed_milliseconds / 1000,
        "float16": fixed_milliseconds / 1000,
    }
    return Machine(
        fixed_seconds=fixed,
        per_sample_seconds={None: 0.0004, "bfloat16": 0.0002, "float16": 0.0002},
        optimizer_seconds=0.0,
        **FAST_LOADER,
    )


def fastest(launcher, folder):
    """True samples/s of the fastest configuration with each global batch."""
    request, rates = load_view(folder).request, {}
    for config in build(request.facts, request.environment, request.goal, request.baseline).configs:
        if launcher.machine.needed_bytes(config) <= request.memory_limit_bytes - request.headroom_bytes:
            batch = config.global_batch_size()
            rates[batch] = max(rates.get(batch, 0.0), launcher.throughput(config))
    return rates


@pytest.mark.parametrize("sampler", ["structured", "tpe"])
@pytest.mark.parametrize("fixed_milliseconds", [0.375, 3.0, 12.0])
def test_the_answer_is_the_knee_and_the_fastest_without_a_change_stands_beside_it(
    tmp_path, fixed_milliseconds, sampler
):
    """Each knee has 1.5 % more speed than is asked of it, which the rounds tell; at 0.4 % chance alone decides.

    Not with every seed: at 0.375 ms the answer of TPE, which seeks no knee, is 256 with 2 of 5 seeds, and with one of
    them where workers are not left out.
    """
    launcher, listener = FakeLauncher(machine=machine(fixed_milliseconds)), Listener()

    answer = searched(tmp_path, launcher, listener, sampler=sampler, seed=1, **LONG)

    rates = fastest(launcher, tmp_path)
    knee = max(32, min(batch for batch, rate in rates.items() if rate >= 0.95 * max(rates.values())))
    assert knee / 2 <= answer.global_batch_size <= knee * 2
    assert {probe.config.gradient_accumulation_steps for probe in listener.trials} == {1}
    unchanged = at_global_batch(answer, 32)
    assert launcher.throughput(Config(values=unchanged.params)) >= 0.95 * rates[32]
    assert {32, answer.global_batch_size} <= {one.config.global_batch_size() for one in answer.confirmations}


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """A search of a target that declares nothing; a large batch is worth it."""
    folder, launcher = tmp_path_factory.mktemp("story") / "study", FakeLauncher(machine=machine(12.0))
    return folder, launcher, searched(folder, launcher, sampler="structured", **LONG)


def test_both_answers_are_kept_and_either_is_loaded(story):
    folder, _, answer = story

    kept = load_result(folder)
    assert kept == answer
    assert load_best(folder, check=False) == answer.params
    assert load_best(folder, global_batch=answer.global_batch_size, check=False) == answer.params
    unchanged = load_best(folder, global_batch=32, check=False)
    assert unchanged == answer.at_baseline_batch.params
    assert unchanged["batch_size"] * unchanged["gradient_accumulation_steps"] == 32
    assert 1 < answer.at_baseline_batch.speedup_low < answer.at_baseline_batch.speedup < answer.speedup
    with pytest.raises(
        NoRecommendation, match=rf"a global batch of 96, only for {kept.global_batch_size} and 32\. .*--global-"
    ):
        load_best(folder, global_batch=96)


def test_either_is_printed_and_exported(story):
    folder, _, answer = story

    told = [
        run_here(folder.parent, "best", "study", "--key", "batch_size", *more).stdout
        for more in ((), ("--global-batch", "32"))
    ]
    exported = run_here(folder.parent, "export", "study", "--to", "torch", "--global-batch", "32").stdout

    assert told == [f"{answer.params['batch_size']}\n", "32\n"]
    assert "Global batch 32 on one device" in exported
    assert "The global batch changes" not in exported
    assert run_here(folder.parent, "best", "study", "--global-batch", "96").returncode == 1


def test_a_changed_global_batch_is_said_first_with_a_learning_rate_to_start_from(story):
    folder, _, answer = story
    first, second, *beside = sentences(answer)
    assert first.startswith(f"With a global batch of {answer.global_batch_size} instead of 32: FakeNet trains ")
    assert "Learning rate to start from: " in second
    assert [text.partition(":")[0] for text in beside] == ["No batch size was declared", "If you train with 32 today"]
    assert list(json.loads((folder / disk.BEST).read_text()))[:5][-1] == "global_batch_change"
    page = render(load_view(folder))
    factor, consequence, rows = (
        page.index(text) for text in ('<p class="answer">', "The global batch changes", "today</th>")
    )
    assert factor < consequence < rows  # directly under the factor
    assert run_here(folder.parent, "export", "study").stdout.startswith(
        f"# The global batch changes from 32 to {answer.global_batch_size}"
    )


def test_what_was_decided_is_said_in_two_sentences(story):
    _, _, answer = story

    said = {reason.code: reason for reason in answer.reasons}
    share = said[Code.GLOBAL_BATCH_UNDECLARED].numbers["share"]
    assert 0.95 <= share <= 1
    assert said[Code.FASTER_WITH_BASELINE_BATCH].numbers["batch"] == 32


def test_less_speed_may_be_given_or_more(tmp_path):
    batches = []
    for within in (0.0, 0.05, 0.3):
        launcher = FakeLauncher(machine=machine(6.0))
        answer = searched(tmp_path / str(within), launcher, sampler="structured", within=within, **LONG)
        batches.append(answer.global_batch_size)

    assert batches == sorted(batches)[::-1]
    assert batches[0] > batches[2]


def test_accumulation_is_searched_where_it_is_asked_for(tmp_path):
    asked = {
        "accum": {"limits": {"gradient_accumulation_steps": Limit(values=(1, 4))}},
        "tune": {"tune": ("batch_size", "gradient_accumulation_steps")},
    }
    for name, options in asked.items():
        listener = Listener()

        searched(tmp_path / name, FakeLauncher(), listener, probes=12, **options, **LONG)

        assert {probe.config.gradient_accumulation_steps for probe in listener.trials} > {1}
        assert not any("accum not searched" in line for line in listener.lines)


def test_a_target_asks_for_it_too_and_else_the_opening_says_that_it_is_not_searched(tmp_path):
    listener, silent = Listener(), Listener()
    space = {**FakeLauncher()._facts.space, "gradient_accumulation_steps": Limit(values=(1, 2))}

    searched(tmp_path / "asked", FakeLauncher(facts=facts(space=space)), listener, probes=12, **LONG)
    searched(tmp_path / "silent", FakeLauncher(), silent, probes=2, **LONG)

    assert {probe.config.gradient_accumulation_steps for probe in listener.trials} == {1, 2}
    assert any("accum not searched" in line and "--accum 1:8" in line for line in silent.lines)


def test_a_declared_batch_that_is_freed_is_not_made_smaller_for_its_own_sake(tmp_path):
    """Every batch is as fast as every other: the baseline's is kept, though smaller ones would do."""
    flat = Machine(fixed_seconds=dict.fromkeys(DTYPES, 0.0), optimizer_seconds=0.0, **FAST_LOADER)

    answer = searched(tmp_path, FakeLauncher(machine=flat, facts=declared()), global_batch="free", **LONG)

    assert answer.global_batch_size == 64
    assert answer.at_baseline_batch is None
    assert answer.global_batch_change is None
    assert Code.GLOBAL_BATCH_FREE in {reason.code for reason in answer.reasons}


def test_answers_of_earlier_versions_say_the_change_in_the_same_place(story, tmp_path):
    folder, _, answer = story
    old = json.loads((folder / disk.BEST).read_text())
    old["warnings"] = [old.pop("global_batch_change"), *old["warnings"]]
    del old["at_baseline_batch"]
    place = tmp_path / "old"
    place.mkdir()
    (place / disk.BEST).write_text(json.dumps(old))
    (place / disk.STUDY).write_text((folder / disk.STUDY).read_text())

    found = load_result(place)

    assert found.global_batch_change == answer.global_batch_change
    assert found.warnings == answer.warnings
    with pytest.raises(NoRecommendation, match=rf"only for {answer.global_batch_size}\."):
        load_best(place, global_batch=32, check=False)


def test_where_one_global_batch_alone_was_tried_nothing_is_said_of_the_others(tmp_path):
    launcher = FakeLauncher(facts=declared(), starting_seconds={"start": 30.0})

    answer = searched(tmp_path, launcher, global_batch="free", time_budget_seconds=40)

    assert {trial.config for trial in load_view(tmp_path).trials} == {Config(values=answer.params)}
    assert not {Code.GLOBAL_BATCH_FREE, Code.GLOBAL_BATCH_UNDECLARED} & {reason.code for reason in answer.reasons}
