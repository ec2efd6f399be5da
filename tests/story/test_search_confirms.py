"""Stories of confirmations: who races, who moves up, what is told of it, and what is known of the rest."""

import pytest

from autotune.answer.confirmation_rounds import MOST_FINALISTS, USUAL_ROUNDS
from autotune.core.codes import Code
from autotune.core.records import SEARCH_PURPOSES, Limit
from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome
from autotune.errors import NoRecommendation
from autotune.testing import FakeLauncher, Machine
from autotune.tuning.confirmation import MOST_CONFIRMATIONS
from tests.worlds import Interrupted, Listener, declared, searched

WORKERS = {"tune": ("num_workers", "channels_last"), "limits": {"num_workers": Limit(values=(0, 1, 2, 4, 8))}}
LONG = {"time_budget_seconds": 1e6, "sampler": "random"}
FLAT = Machine(
    sample_loading_seconds=1e-6, channels_last_factor=dict.fromkeys((None, "bfloat16", "float16"), 1.0),
    noise_between_probes=0.03,
)  # fmt: skip
NOBODY = "All finalists failed when re-measured"


def _raced(listener):
    """Number of probes of the confirmation by configuration, the first confirmed first."""
    counts = {}
    for trial in listener.trials:
        if trial.purpose == "confirm":
            counts[trial.config] = counts.get(trial.config, 0) + 1
    return counts


def test_many_that_are_alike_race_and_are_halved(tmp_path):
    listener = Listener()

    answer = searched(tmp_path, FakeLauncher(machine=FLAT, facts=declared()), listener, **WORKERS, **LONG)

    counts = _raced(listener)
    assert 6 < len(counts) <= MOST_FINALISTS + 1
    assert len(answer.confirmations) == len(counts)
    assert max(counts.values()) > 3 >= sorted(counts.values())[len(counts) // 3]
    baseline = _baseline(listener)
    assert max(counts.values()) == counts[baseline]
    again = sum(trial.purpose == "ablation" and trial.config == baseline for trial in listener.trials)
    assert len(next(c for c in answer.confirmations if c.config == baseline).rounds) == counts[baseline] + again
    plan = f"in up to {USUAL_ROUNDS} interleaved rounds of separate processes, the slower half dropped after 3 and 6"
    assert any(plan in note for note in listener.notes)


def _baseline(listener):
    return listener.trials[0].config


def test_who_is_far_behind_does_not_race(tmp_path):
    listener = Listener()
    limits = {"num_workers": Limit(values=(0, 1, 2, 8))}

    searched(tmp_path, FakeLauncher(facts=declared()), listener, tune=("num_workers",), limits=limits, **LONG)

    assert len({trial.config for trial in listener.trials if trial.purpose in SEARCH_PURPOSES}) == 4
    assert len(_raced(listener)) == 4  # three at least, and the baseline


def _out_of_memory_when_confirmed(*, workers):
    """A machine on which configurations with so many workers run once, and never again."""

    def fault(asked):
        return Outcome.OOM_HOST if asked.purpose == "confirm" and asked.config["num_workers"] >= workers else None

    return FakeLauncher(facts=declared(), faults={ProbeRequest: fault})


def test_when_all_finalists_fail_the_next_ones_of_the_search_are_confirmed_and_it_is_said(tmp_path):
    """Whatever has more than one worker runs once, and never again."""
    listener = Listener()
    launcher = _out_of_memory_when_confirmed(workers=2)

    answer = searched(tmp_path, launcher, listener, **WORKERS, **LONG)

    assert answer.params["num_workers"] == 1
    assert answer.speedup > 1
    assert sum(NOBODY in note and "out of memory" in note for note in listener.notes) >= 1
    assert Code.FASTER_BUT_FAILED in {why.code for why in answer.reasons}
    assert all(len(one.rounds) >= 2 for one in answer.confirmations)


def test_where_all_finalists_fail_the_next_ones_are_confirmed_as_far_as_time_allows(tmp_path):
    listener = Listener()
    launcher = _out_of_memory_when_confirmed(workers=1)

    answer = searched(tmp_path, launcher, listener, time_budget_seconds=60, sampler="random", **WORKERS)

    assert answer.params == answer.baseline
    assert launcher.clock() <= 1.1 * 60


def test_an_edge_on_which_nothing_holds_is_not_probed_for_ever(tmp_path):
    listener = Listener()
    launcher = FakeLauncher(
        facts=declared(), faults={ProbeRequest: lambda asked: Outcome.OOM_HOST if asked.purpose == "confirm" else None}
    )

    tune = (*WORKERS["tune"], "amp_dtype")
    with pytest.raises(NoRecommendation, match="All configurations failed when re-measured"):
        searched(tmp_path, launcher, listener, **{**WORKERS, "tune": tune}, stability="off", **LONG)

    assert sum(NOBODY in note for note in listener.notes) == MOST_CONFIRMATIONS - 1


def test_what_failed_is_told_by_the_knobs_that_the_search_moves_and_no_others(tmp_path):
    listener = Listener()
    launcher = FakeLauncher(
        facts=declared(), faults={ProbeRequest: lambda asked: Outcome.OOM_HOST if asked.purpose == "confirm" else None}
    )

    with pytest.raises(NoRecommendation) as caught:
        searched(tmp_path, launcher, listener, **{**WORKERS, "tune": ("num_workers",)}, stability="off", **LONG)

    told = [*(note for note in listener.notes if NOBODY in note), str(caught.value)]
    assert all(" workers" in text and "nchw" not in text and "fp32" not in text for text in told)


@pytest.mark.parametrize("budget", [90, 240])
def test_the_race_keeps_to_the_time_budget(tmp_path, budget):
    launcher = FakeLauncher(machine=FLAT, facts=declared())

    answer = searched(tmp_path, launcher, time_budget_seconds=budget, sampler="random", **WORKERS)

    assert launcher.clock() <= budget * 1.1
    assert answer.rounds >= 2


def test_a_budget_that_holds_the_baseline_only_is_not_overrun_to_measure_it_again(tmp_path):
    listener = Listener()

    answer = searched(tmp_path, FakeLauncher(facts=declared()), listener, time_budget_seconds=3)

    assert [trial.purpose for trial in listener.trials] == ["baseline"]
    assert (answer.params, answer.rounds, answer.probes) == (answer.baseline, 1, 1)
    assert Code.ONLY_BASELINE_TRIED in {warning.code for warning in answer.warnings}


def test_what_is_known_of_the_rest_is_part_of_the_answer(tmp_path):
    whole = searched(tmp_path / "whole", FakeLauncher(facts=declared()), tune=("num_workers",), **LONG)
    sampled = searched(tmp_path / "sampled", FakeLauncher(facts=declared()), probes=3, **LONG)

    assert whole.certificate.code is Code.ALL_MEASURED
    assert (sampled.certificate.code, sampled.certificate.numbers["measured"]) == (Code.SAMPLED, 6)


def test_nothing_is_recommended_at_a_batch_that_was_never_run(tmp_path):
    """A law that was fitted to small batches promises most for the largest."""
    listener = Listener()

    answer = searched(tmp_path, FakeLauncher(), listener, sampler="structured", probes=4, time_budget_seconds=1e6)

    ran = [t.config.batch_size for t in listener.trials if t.result.outcome is Outcome.OK and t.purpose == "confirm"]
    assert ran.count(answer.params["batch_size"]) >= 2


@pytest.mark.parametrize("run_of_it", [3, 9, 30])
def test_a_confirmation_that_was_broken_off_goes_on_where_it_was(tmp_path, run_of_it):
    """Interrupted in the first round, in the second, and after halving; all that a whole round measured counts."""
    whole, first, second = Listener(), Listener(), Listener()
    searched(tmp_path / "whole", FakeLauncher(machine=FLAT, facts=declared()), whole, **WORKERS, **LONG)
    at = next(number for number, trial in enumerate(whole.trials) if trial.purpose == "confirm") + run_of_it

    with pytest.raises(KeyboardInterrupt):
        launcher = Interrupted(at, machine=FLAT, facts=declared())
        searched(tmp_path / "parts", launcher, first, **WORKERS, **LONG)
    answer = searched(tmp_path / "parts", FakeLauncher(machine=FLAT, facts=declared()), second, **WORKERS, **LONG)

    assert {trial.purpose for trial in second.trials} <= {"confirm", "ablation"}
    assert list(_raced(whole)) == list(_raced(first) | _raced(second))  # the same race
    counted = [number for one in answer.confirmations for number in one.trials]
    before = [trial.number for trial in first.trials if trial.purpose == "confirm"]
    assert len(set(before) - set(counted)) < len(answer.confirmations)  # less than one round is lost
    assert set(counted) >= {trial.number for trial in second.trials if trial.purpose == "confirm"}
    assert any("completed rounds are reused" in note for note in second.notes)


def test_a_confirmation_that_goes_on_in_a_short_budget_runs_what_is_missing_only(tmp_path):
    first, second = Listener(), Listener()
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path, Interrupted(40, machine=FLAT, facts=declared()), first, **WORKERS, **LONG)
    before = sum(_raced(first).values())

    answer = searched(
        tmp_path, FakeLauncher(machine=FLAT, facts=declared()), second, **WORKERS, sampler="random",
        time_budget_seconds=1.0,
    )  # fmt: skip

    assert before >= 20
    assert sum(_raced(second).values()) == 0
    assert answer.rounds >= 2


def test_a_study_with_an_answer_is_searched_further_and_confirmed_anew(tmp_path):
    searched(tmp_path, FakeLauncher(facts=declared()), probes=3, **LONG)
    again = Listener()

    searched(tmp_path, FakeLauncher(facts=declared()), again, probes=3, **LONG)

    assert sum(trial.purpose == "search" for trial in again.trials) == 3
    assert sum(_raced(again).values()) >= 6


def test_time_that_holds_one_more_probe_is_not_thrown_away(tmp_path):
    """Nothing is kept for a confirmation where none fits: what is tried is kept for another search."""
    listener, launcher = Listener(), FakeLauncher(facts=declared())

    searched(tmp_path, launcher, listener, time_budget_seconds=13, **WORKERS)

    assert {trial.purpose for trial in listener.trials} == {"baseline", "search"}
    assert launcher.clock() <= 1.1 * 13


@pytest.mark.parametrize(("seconds", "rounds"), [(30, 2), (40, 3), (55, 4)])
def test_a_short_budget_has_the_rounds_that_fit(tmp_path, seconds, rounds):
    listener = Listener()
    machine = Machine(
        sample_loading_seconds=1e-6, noise_between_probes=0.0,
        channels_last_factor=dict.fromkeys((None, "bfloat16", "float16"), 1 / 1.03),
    )  # fmt: skip

    launcher = FakeLauncher(machine=machine, facts=declared())
    searched(tmp_path, launcher, listener, time_budget_seconds=seconds, tune=("channels_last",), stability="off")

    assert set(_raced(listener).values()) == {rounds}
    assert launcher.clock() <= 1.1 * seconds
