"""A batch that changes what the model learns is held unless another is surely worth the warning."""

import dataclasses

import pytest

from autotune.answer.confirmation_rounds import confirm_in_rounds
from autotune.answer.recommend import StudyFacts, recommend
from autotune.core.codes import Code
from autotune.core.records import Config, Goal
from autotune.core.results import Trial
from autotune.study.summary import ConfigSummary
from autotune.study.valid_probes import Judged
from autotune.testing import FakeLauncher
from autotune.testing.machine import Machine
from autotune.tuning.confirmation import confirm
from autotune.tuning.probing import probe_with_retry
from tests.tuning.test_ablation import ablated
from tests.worlds import GIB, config, context, facts, good, measured, searched, space, study_request, trial

NORM = facts(has_batch_norm=True)
BASE = config(16, gradient_accumulation_steps=4)
OTHER, HELD = config(64, amp_dtype="bfloat16"), config(16, gradient_accumulation_steps=4, amp_dtype="bfloat16")
STEADY = (1.0, 1.002, 0.998, 1.001)
RESTLESS = (1.18, 0.87, 1.13, 0.87)


def test_what_the_race_compared_is_measured_again_last(tmp_path):
    """As seen: the micro-batch, which rounds had shown to gain, took the time of bf16, which none had."""
    launcher = FakeLauncher(machine=_machine(0.2))
    rate = launcher.throughput(OTHER)
    full = trial(measured(0.6 * rate), 0, "search", **OTHER.values | {"amp_dtype": None})
    own = trial(measured(rate), 1, "search", **OTHER.values)

    answer, _ = ablated(
        tmp_path, launcher, winner=OTHER, beside=[HELD], rounds=2, rounds_of_time=4.5, known=(full, own),
        facts=NORM, baseline=BASE,
    )  # fmt: skip

    untested = {next(iter(one.values)): one.untested for one in answer.changes}
    assert answer.params == OTHER.values
    assert untested == {"batch_size": None, "amp_dtype": None}


def _asked(**changes):
    return study_request(**{"facts": NORM, "baseline": BASE, **changes})


def _candidate(where, rates, peak=GIB):
    trials = [
        Trial(number=n, purpose="confirm", config=where, result=measured(rate, peak=peak))
        for n, rate in enumerate(rates)
    ]
    return ConfigSummary(config=where, trials=tuple(trials), verdicts=tuple(map(good, rates)))


def _answer(gain, pace=STEADY, held_peak=GIB, **changes):
    """The answer of a race in which another micro-batch is faster by that share."""
    candidates = [
        _candidate(BASE, (50.0, 50.1, 49.9, 50.0)),
        _candidate(HELD, (100.0, 100.1, 99.9, 100.0), peak=held_peak),
        _candidate(OTHER, [100 * (1 + gain) * one for one in pace]),
    ]
    return recommend(candidates, _asked(**changes), StudyFacts(study="s", probes=1, seconds=1.0))


def _machine(gain):
    """A machine without noise to speak of on which 64 once is faster than 16 four times by that share, in bf16."""
    steps = 64 * 0.00018 + 0.002
    fixed = gain * steps / (3 - gain)
    same = dict.fromkeys((None, "bfloat16", "float16"))
    return dataclasses.replace(
        Machine(), sample_loading_seconds=1e-7, fixed_seconds=dict.fromkeys(same, fixed),
        channels_last_factor=dict.fromkeys(same, 1.0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("gain", "pace", "is_changed"), [(0.04, STEADY, False), (0.08, STEADY, True), (0.08, RESTLESS, False)]
)
@pytest.mark.parametrize("seen_by", [NORM, facts(is_mean_loss=False)], ids=["BatchNorm", "loss"])
def test_another_micro_batch_has_to_be_worth_five_per_cent_and_no_luck(seen_by, gain, pace, is_changed):
    answer = _answer(gain, pace, facts=seen_by)

    assert answer.params == (OTHER if is_changed else HELD).values


def test_what_was_faster_and_is_not_taken_says_why():
    answer = _answer(0.04)

    (said,) = [one.reason for one in answer.runners_up if one.config == OTHER]
    assert said.code is Code.FASTER_OTHER_MICRO_BATCH
    assert said.numbers["share"] == pytest.approx(0.04, abs=0.005)


def test_nothing_is_held_without_batch_norm_where_batches_are_free_or_memory_is_sought():
    assert _answer(0.04, facts=facts()).params == OTHER.values
    assert _answer(0.08, RESTLESS, goal=Goal()).params == OTHER.values
    memory = Goal(global_batch=64, objective="memory")
    assert _answer(-0.02, goal=memory, held_peak=8 * GIB).params == OTHER.values


@pytest.mark.parametrize(("gain", "is_kept"), [(0.035, False), (0.2, True)])
def test_it_is_taken_back_and_stays_only_if_it_is_worth_the_warning(tmp_path, gain, is_kept):
    kept = {}
    for name, of in (("norm", NORM), ("none", facts())):
        launcher = FakeLauncher(machine=_machine(gain))
        answer, first = ablated(tmp_path / name, launcher, winner=OTHER, baseline=BASE, facts=of)
        assert first.params == OTHER.values
        kept[name] = answer.params == OTHER.values

    assert kept == {"norm": is_kept, "none": True}


def test_the_first_finalist_races_beside_itself_with_the_micro_batch_held(tmp_path):
    search = context(tmp_path, FakeLauncher(machine=_machine(0.0)), request=_asked())
    for one, purpose in ((BASE, "baseline"), (OTHER, "search")):
        probe_with_retry(search, one, purpose)

    confirmed = confirm(search)

    assert {one.config for one in confirmed} == {BASE, OTHER, HELD}
    assert all(len(one.rounds) >= 2 for one in confirmed)


def test_without_time_for_both_the_one_that_holds_it_races(tmp_path):
    search = context(
        tmp_path, FakeLauncher(machine=_machine(0.0)), request=_asked(), left=25.0, time_budget_seconds=60.0
    )
    for one, purpose in ((BASE, "baseline"), (OTHER, "search")):
        probe_with_retry(search, one, purpose)

    assert {one.config for one in confirm(search)} == {BASE, HELD}
    (told,) = [one for one in search.reporter.notes if "is not confirmed" in one]
    assert told.startswith("64×1") and "no time to compare it with 16×4" in told


def test_rounds_go_on_while_it_is_open_if_it_is_worth_it():
    rates = {BASE: [50.0] * 9, HELD: [100.0, 103.0, 99.0] * 3, OTHER: [118.0, 99.0, 116.0, 112.0, 115.0, 113.0] * 2}
    asked, ran = [], dict.fromkeys(rates, 0)

    def probe(where):
        ran[where] += 1
        rate = rates[where][ran[where] - 1]
        one = Trial(number=sum(ran.values()), purpose="confirm", config=where, result=measured(rate))
        return Judged(one, good(rate))

    def affords(running, is_open):
        asked.append(is_open)
        return is_open

    confirmed = confirm_in_rounds([ConfigSummary(config=one) for one in rates], 2, probe, _asked(), affords=affords)

    assert asked == [True]
    assert ran == dict.fromkeys(rates, 3)
    answer = recommend(confirmed, _asked(), StudyFacts(study="s", probes=1, seconds=1.0))
    assert answer.params == OTHER.values


@pytest.mark.parametrize("seed", [6, 11, 12])
def test_a_noisy_machine_does_not_change_the_micro_batch_for_nothing(tmp_path, seed):
    machine = dataclasses.replace(_machine(0.01), noise_between_probes=0.08)
    told = facts(has_batch_norm=True, baseline={"batch_size": 16, "gradient_accumulation_steps": 4})
    launcher = FakeLauncher(machine=machine, facts=told, seed=seed, starting_seconds={"start": 1.0})

    answer = searched(tmp_path, launcher, seed=seed, sampler="structured", time_budget_seconds=60)

    assert Config(values=answer.params).batch_size == 16


SMALL, FREE = config(32), facts()
LARGE, AS_SMALL = config(128, amp_dtype="bfloat16"), config(32, amp_dtype="bfloat16")


def _free(**changes):
    """Another global batch may be taken: nothing was declared."""
    return study_request(**{"facts": FREE, "baseline": SMALL, "goal": Goal(), **changes})


def _racing(tmp_path, gain, left=1000.0):
    """Who races after single probes on a machine where 128 samples are faster than 32 by that share."""
    fixed = gain * 128 * 0.00018 / (3 - gain)
    machine = dataclasses.replace(
        _machine(0.0), fixed_seconds=dict.fromkeys((None, "bfloat16", "float16"), fixed), optimizer_seconds=0.0
    )
    search = context(tmp_path, FakeLauncher(machine=machine), request=_free(), left=left, time_budget_seconds=60.0)
    search = dataclasses.replace(search, space=space(Goal(), SMALL))
    for one, purpose in ((SMALL, "baseline"), (AS_SMALL, "search"), (LARGE, "search")):
        probe_with_retry(search, one, purpose)
    return {one.config for one in confirm(search)}


@pytest.mark.parametrize(
    ("gain", "pace", "is_changed"), [(0.04, STEADY, False), (0.08, STEADY, True), (0.08, RESTLESS, False)]
)
def test_another_global_batch_has_to_be_worth_what_the_knee_gives_and_no_luck(gain, pace, is_changed):
    candidates = [
        _candidate(SMALL, (50.0, 50.1, 49.9, 50.0)),
        _candidate(AS_SMALL, (100.0, 100.1, 99.9, 100.0)),
        _candidate(LARGE, [100 * (1 + gain) * one for one in pace]),
    ]

    answer = recommend(candidates, _free(), StudyFacts(study="s", probes=1, seconds=1.0))

    assert answer.params == (LARGE if is_changed else AS_SMALL).values


def test_the_first_finalist_races_beside_itself_with_the_global_batch_held(tmp_path):
    assert {LARGE, AS_SMALL} <= _racing(tmp_path, 0.08)


@pytest.mark.parametrize(("gain", "confirmed"), [(0.04, AS_SMALL), (0.5, LARGE)])
def test_without_time_for_both_a_global_batch_that_does_not_evidently_gain_is_held(tmp_path, gain, confirmed):
    assert _racing(tmp_path, gain, left=25.0) == {SMALL, confirmed}
