"""The confirmation as a stage: how long it measures, how its plan is announced, and a baseline that is alone."""

import dataclasses

import pytest
from msgspec.structs import replace

from autotune.answer.recommend import StudyFacts, recommend
from autotune.context.budget import TimeBudget
from autotune.context.probe_budgets import BRIEF, LEAST
from autotune.core import codec
from autotune.core.codes import Code
from autotune.core.interference_readings import GpuUse, HostInterference
from autotune.core.notices import notice
from autotune.core.records import Goal
from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome
from autotune.errors import NoRecommendation
from autotune.launch.base import REQUEST
from autotune.report.phrases import headline
from autotune.study import disk
from autotune.testing import FakeLauncher, Machine
from autotune.tuning.confirmation import confirm
from autotune.tuning.finalists import check_precision
from autotune.tuning.probing import probe_with_retry
from tests.worlds import Listener, config, context, failed, measured, study_request, trial

NO_LOADING = Machine(sample_loading_seconds=1e-6)


def _after(folder, workers, listener, left=0.0, **asked):
    """A search after probes that are all alike but for their workers, the first one being the baseline."""
    search = context(
        folder, FakeLauncher(machine=NO_LOADING), listener, request=study_request(**asked), left=left
    )  # fmt: skip
    probe_with_retry(search, search.request.baseline, "baseline")
    for count in workers:
        probe_with_retry(search, config(batch_size=64, num_workers=count), "search")
    return search


@pytest.mark.parametrize(("left", "probe_budget"), [(600.0, BRIEF), (40.0, BRIEF), (21.0, LEAST)])
def test_a_race_measures_briefly_and_least_where_time_is_too_short_for_three_rounds(tmp_path, left, probe_budget):
    listener = Listener()
    search = _after(tmp_path, (1, 2, 4), listener, left)

    confirm(search)

    confirmed = [t.number for t, _ in search.history.judged if t.purpose == "confirm"]
    asked = [
        codec.read(tmp_path / disk.PROBES / f"{number:04d}" / REQUEST, ProbeRequest).budget for number in confirmed
    ]
    usual = {name: getattr(probe_budget, name) for name in ("first_step_deadline_seconds", "step_deadline_seconds")}
    assert {replace(one, **usual) for one in asked} == {probe_budget}
    assert any("measured briefly" in note for note in listener.notes) is (probe_budget == LEAST)


def test_where_something_else_than_speed_is_sought_no_window_is_cut(tmp_path):
    listener = Listener()
    search = _after(tmp_path, (1, 2, 4), listener, 0.0, goal=Goal(global_batch=64, objective="memory"))

    confirm(search)

    assert not any("measured briefly" in note for note in listener.notes)


@pytest.mark.parametrize(
    ("left", "said", "open_gain"),
    [
        (45.0, "Confirming 2 configurations in up to 4 interleaved rounds of separate processes, ",
         False),
        (1e6, "Confirming 5 configurations in up to 12 interleaved rounds of separate processes, the slower half "
              "dropped after 3, about ", True),
    ],
)  # fmt: skip
def test_the_plan_is_told_in_a_line(tmp_path, left, said, open_gain):
    listener = Listener()
    search = _after(tmp_path, (1, 2, 4, 8), listener, left)

    confirmed = confirm(search)

    (plan,) = [note for note in listener.notes if note.startswith("Confirming")]
    assert plan.startswith(said)
    assert plan.endswith(", up to 24 rounds if the gain is still open.") is open_gain
    assert "at most" not in plan
    assert confirmed[-1].config == study_request().baseline


def test_where_only_one_round_fits_it_is_told_and_run(tmp_path):
    listener = Listener()
    search = _after(tmp_path, (1,), listener)
    left = 0.8 * search.budget.shortest_confirmation_seconds
    short = TimeBudget(search.history, 60.0, lambda: 60.0 - left, 0.0)

    confirmed = confirm(dataclasses.replace(search, budget=short))

    (plan,) = [note for note in listener.notes if note.startswith("Confirming")]
    assert plan.startswith("Confirming 2 configurations in 1 interleaved round of separate processes, ")
    assert {trial.purpose for one in confirmed for trial in one.trials} == {"confirm"}


def test_without_time_the_one_probe_of_a_baseline_alone_stands(tmp_path):
    listener = Listener()
    search = _after(tmp_path, (), listener, 5.0)

    (alone,) = confirm(search)

    assert [trial.number for trial in alone.trials] == [0]
    assert len(alone.scores) == len(search.history.judged) == 1
    assert any("of the baseline is used" in note for note in listener.notes)


SLOW_CYCLES = dataclasses.replace(NO_LOADING, per_sample_seconds={None: 0.05})  # 3.2 s; 0.8 s in a search probe


@pytest.mark.parametrize(("left", "measured"), [(16.0, []), (40.0, [1, 2])])
def test_a_baseline_alone_is_measured_again_where_two_of_its_whole_cycles_end_in_time(tmp_path, left, measured):
    request = study_request(baseline=config(batch_size=8, gradient_accumulation_steps=8))
    search = context(tmp_path, FakeLauncher(machine=SLOW_CYCLES), request=request, left=left, time_budget_seconds=60.0)
    probe_with_retry(search, request.baseline, "baseline")
    assert 2 * search.budget.least_seconds(request.baseline) < 16.0

    confirm(search)

    assert [trial.number for trial, _ in search.history.judged if trial.purpose == "confirm"] == measured


def test_a_baseline_alone_is_measured_again_all_the_same(tmp_path):
    listener = Listener()
    search = _after(tmp_path, (), listener, 1e6)

    (alone,) = confirm(search)

    assert len(alone.rounds) == 3
    assert any(note.startswith("Confirming 1 configuration in") for note in listener.notes)


@pytest.mark.parametrize(("late", "goes_on"), [(50.0, True), (64.0, False)])
def test_no_second_round_begins_that_would_end_more_than_a_twentieth_too_late(tmp_path, late, goes_on):
    """The first round took far longer than the probes of the search had; `late` of 60 s are gone after it."""
    search = _after(tmp_path, (4,), Listener())

    def confirmed():
        return [trial for trial, _ in search.history.judged if trial.purpose == "confirm"]

    budget = TimeBudget(search.history, 60.0, lambda: late if len(confirmed()) >= 2 else 30.0, 0.0)
    confirm(dataclasses.replace(search, budget=budget))

    assert (len(confirmed()) > 2) is goes_on


def test_what_there_is_no_time_to_confirm_is_said_and_the_baseline_is_not_measured_for_nothing(tmp_path):
    search = context(
        tmp_path, FakeLauncher(machine=NO_LOADING), request=study_request(), left=1.0, time_budget_seconds=30.0
    )
    probe_with_retry(search, search.request.baseline, "baseline")
    probe_with_retry(search, config(batch_size=64, num_workers=4), "search")

    found = confirm(search)

    assert not [t for t, _ in search.history.judged if t.purpose == "confirm"]
    answer = recommend(found, search.request, StudyFacts(study="x", probes=2, seconds=1.0))
    assert answer.params == search.request.baseline.values
    assert (answer.undecided, answer.rounds) == (None, 1)
    assert headline(answer).startswith("keep your baseline: ")


def test_what_is_far_faster_is_recommended_unconfirmed_with_a_warning(tmp_path):
    """Single probes err by a tenth, not by a factor of three."""
    machine = dataclasses.replace(NO_LOADING, sample_loading_seconds=0.01)
    search = context(
        tmp_path, FakeLauncher(machine=machine), request=study_request(), left=1.0, time_budget_seconds=30.0
    )
    probe_with_retry(search, search.request.baseline, "baseline")
    probe_with_retry(search, config(batch_size=64, num_workers=8), "search")

    answer = recommend(confirm(search), search.request, StudyFacts(study="x", probes=2, seconds=1.0))

    assert answer.params["num_workers"] == 8
    assert answer.rounds == 1
    assert Code.NOT_CONFIRMED in [one.code for one in answer.warnings]


def _answered_after(tmp_path, launcher, other):
    """The answer after single probes of the baseline and another one, without time for more."""
    search = context(tmp_path, launcher, request=study_request(), left=1.0, time_budget_seconds=30.0)
    probe_with_retry(search, search.request.baseline, "baseline")
    probe_with_retry(search, other, "search")
    facts = StudyFacts(study="x", probes=2, seconds=42.0, certificate=notice(Code.SAMPLED, measured=2, total=288))
    return recommend(confirm(search), search.request, facts)


def test_what_is_far_faster_than_a_baseline_that_others_slowed_is_open(tmp_path):
    machine, other = dataclasses.replace(NO_LOADING, sample_loading_seconds=0.01), config(batch_size=64, num_workers=8)

    answer = _answered_after(tmp_path, Disturbed(machine, "baseline"), other)

    assert answer.params == config(batch_size=64).values
    assert answer.undecided is not None
    assert (answer.undecided.config, answer.undecided.beside_others) == (other, True)
    assert headline(answer).startswith("undecided between your baseline and 64×1 workers 8, measured")
    assert "× as fast in single probes while other work slowed the baseline: your baseline is kept" in headline(answer)


def test_what_is_far_faster_though_others_slowed_it_is_recommended_unconfirmed(tmp_path):
    machine, other = dataclasses.replace(NO_LOADING, sample_loading_seconds=0.01), config(batch_size=64, num_workers=8)

    answer = _answered_after(tmp_path, Disturbed(machine, "search"), other)

    assert answer.params == other.values
    assert Code.NOT_CONFIRMED in [one.code for one in answer.warnings]


@pytest.mark.parametrize("disturbed", ["baseline", "search"])
def test_what_is_no_faster_where_others_slowed_a_probe_is_compared_with_nothing(tmp_path, disturbed):
    answer = _answered_after(tmp_path, Disturbed(NO_LOADING, disturbed), config(batch_size=64, num_workers=1))

    assert (answer.params, answer.undecided) == (config(batch_size=64).values, None)
    assert headline(answer) == "undecided: nothing else could be compared with your baseline, which is kept"


def test_a_baseline_whose_gpu_others_used_is_compared_with_nothing_by_a_single_probe(tmp_path):
    machine, used = dataclasses.replace(NO_LOADING, sample_loading_seconds=0.01), GpuUse(readings=5, foreign_share=0.5)

    answer = _answered_after(tmp_path, Disturbed(machine, "baseline", used), config(batch_size=64, num_workers=8))

    assert (answer.params, answer.undecided) == (config(batch_size=64).values, None)


OUTSIDE = study_request(baseline=config(batch_size=32))  # of what may be searched: 64 samples are held


@pytest.mark.parametrize("disturbed", ["baseline", "search"])
def test_where_the_baseline_may_not_be_recommended_what_ran_is_and_is_said_to_rest_on_single_probes(
    tmp_path, disturbed
):
    search = context(
        tmp_path, Disturbed(NO_LOADING, disturbed), request=OUTSIDE, left=1.0, time_budget_seconds=30.0
    )  # fmt: skip
    probe_with_retry(search, search.request.baseline, "baseline")
    probe_with_retry(search, config(batch_size=64), "search")

    answer = recommend(confirm(search), search.request, StudyFacts(study="x", probes=2, seconds=1.0))

    assert answer.params == config(batch_size=64).values
    codes = [one.code for one in answer.warnings]
    assert {Code.NOT_CONFIRMED, Code.CONFIRMATION_INTERFERENCE} <= set(codes)


def test_where_only_a_baseline_ran_that_may_not_be_recommended_the_reason_is_time(tmp_path):
    search = context(tmp_path, FakeLauncher(machine=NO_LOADING), request=OUTSIDE, left=1.0, time_budget_seconds=30.0)
    probe_with_retry(search, search.request.baseline, "baseline")

    with pytest.raises(NoRecommendation) as ended:
        confirm(search)

    assert str(ended.value) == (
        "Nothing that may be recommended ran: the baseline may not (measured for comparison only: its global batch is "
        "32, and 64 is held), and there was no time for anything else. Search again with a longer --time-budget; the "
        "measurements are kept."
    )


def test_where_all_but_such_a_baseline_failed_their_failure_is_the_reason(tmp_path):
    search = context(tmp_path, Refusing(), request=OUTSIDE, left=1.0, time_budget_seconds=30.0)
    probe_with_retry(search, search.request.baseline, "baseline")
    probe_with_retry(search, config(batch_size=64), "search")

    with pytest.raises(NoRecommendation, match=r"and 1 other probe failed\. .*act: invalid choice: 'swish'"):
        confirm(search)


FASTER = [config(64, num_workers=count) for count in (1, 2, 4)]


def test_what_takes_the_places_of_failed_finalists_is_not_confirmed_before_its_losses_were_compared(tmp_path):
    def fault(asked):
        return Outcome.OOM_HOST if asked.config in FASTER else None

    replacing = config(64, amp_dtype="float16")
    rates = {config(64): 100.0, **dict.fromkeys(FASTER, 200.0), replacing: 150.0}
    trials = [trial(measured(rate), number, **one.values) for number, (one, rate) in enumerate(rates.items())]
    launcher = FakeLauncher(machine=NO_LOADING, bad_dtypes=["float16"], faults={ProbeRequest: fault})
    search = context(tmp_path, launcher, trials=trials)
    check_precision(search)
    assert not search.history.precision_checks

    confirm(search)

    assert search.history.refusal(replacing) is not None
    assert replacing not in [one.config for one, _ in search.history.judged if one.purpose == "confirm"]


class Refusing(FakeLauncher):
    """Its program does not take another batch than the baseline's."""

    def run(self, request, folder):
        if request.config == OUTSIDE.baseline:
            return super().run(request, folder)
        return failed(Outcome.USER_ERROR, "train.py ended with exit status 2: act: invalid choice: 'swish'")


class Disturbed(FakeLauncher):
    """Slows the probe of the baseline, or the one after it: on the cores, or on the `gpu`."""

    def __init__(self, machine, which, gpu=None):
        super().__init__(machine=machine)
        self._gpu = gpu
        self._left = {"baseline": (True, False), "search": (False, True)}[which]

    def run(self, request, folder):
        result = super().run(request, folder)
        is_slow, *left = self._left or (False,)
        self._left = tuple(left)
        if not is_slow:
            return result
        if self._gpu:
            return replace(result, gpu=self._gpu)
        shared = HostInterference(run_queue_wait_share=0.5, foreign_cores=1.0)
        return replace(result, measurement=replace(result.measurement, interference=shared))
