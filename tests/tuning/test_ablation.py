"""Every change of a winner has to earn its place: it is taken back, and stays only if the winner is worse then."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from autotune.answer.confirmation_rounds import FEWEST_ROUNDS, confirm_in_rounds
from autotune.context.budget import TimeBudget
from autotune.context.step_shares import evident_knobs
from autotune.core.codes import Code
from autotune.core.interference_readings import HostInterference
from autotune.core.notices import notice
from autotune.core.records import Goal
from autotune.core.requests import ProbeRequest
from autotune.core.results import FAULT_SECONDS, Outcome, ProbeResult
from autotune.errors import EnvironmentUnfit
from autotune.study import disk
from autotune.study.recommendation import read_best
from autotune.study.summary import ConfigSummary
from autotune.study.valid_probes import BACK_OFF_SECONDS
from autotune.study.view import load_view
from autotune.testing import FakeLauncher
from autotune.testing.machine import Machine
from autotune.tuning.ablation import _Ablation, _tell_dropped, ablate
from autotune.tuning.answering import recommendation_of
from autotune.tuning.probed_scores import search_scores
from autotune.tuning.probing import probe_with_repeat
from autotune.tuning.reversions import Reversion, WinnerComparison, proven, seen_slowdown
from tests.worlds import (
    Interrupted,
    Listener,
    config,
    context,
    declared,
    earlier,
    environment,
    failed,
    good,
    measured,
    searched,
    space,
    study_request,
    trial,
)

LONG = {"time_budget_seconds": 1e6}
SAME = {None: 1.0, "bfloat16": 1.0, "float16": 1.0}
IDLE: dict[str, Any] = {"sample_loading_seconds": 1e-7, "channels_last_factor": SAME}  # workers and layout gain nothing
WINNER = config(64, amp_dtype="bfloat16", num_workers=4, channels_last=True)
KNOBS = ["amp_dtype", "num_workers", "channels_last"]
CERTIFICATE = earlier("nothing is known of the rest")


class OneOfTwo(Machine):
    """A machine on which workers and layout gain the same, and the second of them nothing more."""

    def computing_seconds(self, config):
        has_one = config.values["channels_last"] or config.values["num_workers"]
        return super().computing_seconds(config) * (1.0 if has_one else 1.2)


class Failing(FakeLauncher):
    """A fake machine on which the `at`-th probe of an ablation ends otherwise: by an exception, or so."""

    def __init__(self, ending, at=1, **options):
        super().__init__(**options)
        self._ending, self._left = ending, at

    def run(self, request, folder):
        if isinstance(request, ProbeRequest) and request.purpose == "ablation":
            self._left -= 1
            if self._left == 0 and isinstance(self._ending, BaseException):
                raise self._ending
        answer = super().run(request, folder)
        is_hit = isinstance(answer, ProbeResult) and self._left <= 0 and request.purpose == "ablation"
        return failed() if is_hit and request.config == self._ending else answer


def ablated(
    folder, launcher, listener=None, *, winner=WINNER, beside=(), rounds=4, learned=(), known=(), rounds_of_time=1e6,
    **asked,
):  # fmt: skip
    """The answer after the ablation, and the first one, for a race of the winner, the baseline and those `beside`."""
    request = study_request(**asked)
    search = context(folder, launcher, listener, request=request, trials=known)
    for _ in known:
        disk.new_attempt(folder, ProbeRequest)
    for one in learned:
        search.guard.learn(one)
    candidates = [ConfigSummary(config=one) for one in (winner, *beside, request.baseline)]
    confirmed = confirm_in_rounds(candidates, rounds, lambda one: probe_with_repeat(search, one, "confirm"), request)
    first = recommendation_of(search, CERTIFICATE, confirmed)
    began, one = launcher.clock(), search.history.times.expected_seconds(search.budget.round_probe_budget)
    budget = TimeBudget(search.history, rounds_of_time * one, launcher.clock, began)
    search = dataclasses.replace(search, budget=budget)
    return ablate(search, confirmed, first, CERTIFICATE), first


def _worths(answer):
    return {next(iter(one.values)): (one.kept, one.ratio) for one in answer.changes}


def test_what_gains_nothing_is_dropped_and_what_is_left_was_itself_run(tmp_path):
    listener = Listener()

    answer, first = ablated(tmp_path, FakeLauncher(machine=Machine(**IDLE)), listener)

    assert first.params == WINNER.values
    assert answer.params == config(64, amp_dtype="bfloat16").values
    assert len(next(one for one in answer.confirmations if one.config.values == answer.params).rounds) >= 2
    assert {name: kept for name, (kept, _) in _worths(answer).items()} == dict.fromkeys(KNOBS, False) | {
        "amp_dtype": True
    }
    assert _worths(answer)["amp_dtype"][1] < 0.8
    assert any("Dropped" in note and "num_workers" in note and "channels_last" in note for note in listener.notes)
    assert read_best(tmp_path / disk.BEST) == answer


def test_what_earns_its_place_stays_and_its_loss_is_told(tmp_path):
    answer, first = ablated(tmp_path, FakeLauncher())

    assert answer.params == first.params == WINNER.values
    assert all(kept and ratio < 0.97 for kept, ratio in _worths(answer).values())
    assert all(one.ratio_high < 1 for one in answer.changes)


def test_of_two_changes_that_gain_the_same_one_is_put_back(tmp_path):
    answer, _ = ablated(tmp_path, FakeLauncher(machine=OneOfTwo(**IDLE)))

    assert bool(answer.params["num_workers"]) != bool(answer.params["channels_last"])
    assert answer.params["amp_dtype"] == "bfloat16"


def test_a_change_that_is_surely_worth_something_leaves_after_two_rounds(tmp_path):
    launcher = FakeLauncher()

    answer, _ = ablated(tmp_path, launcher)

    counts = {one.config: len(one.trials) for one in answer.confirmations}
    assert counts[config(64, num_workers=4, channels_last=True)] == FEWEST_ROUNDS


@pytest.mark.parametrize(("rounds", "untested"), [(0, 3), (4.5, 2), (6.5, 1), (40, 0)])
def test_what_there_is_no_time_for_is_said_to_be_untested_and_stays(tmp_path, rounds, untested):
    answer, _ = ablated(tmp_path, FakeLauncher(machine=Machine(**IDLE)), rounds_of_time=rounds)

    late = [one for one in answer.changes if one.untested == notice(Code.CHANGE_WITHOUT_TIME)]
    assert len(late) == untested
    assert all(one.kept and one.ratio_low is None for one in late)


def test_what_single_probes_said_is_told_of_what_there_is_no_time_for(tmp_path):
    launcher = FakeLauncher(machine=Machine(**IDLE))
    rate = launcher.throughput(WINNER)
    seen = trial(measured(0.6 * rate), 0, "search", **WINNER.values | {"amp_dtype": None})
    own = trial(measured(rate), 1, "search", **WINNER.values)

    answer, _ = ablated(tmp_path, launcher, rounds_of_time=0, known=(seen, own))

    (precision,) = [one for one in answer.changes if "amp_dtype" in one.values]
    assert (precision.untested, precision.ratio_low) == (notice(Code.CHANGE_WITHOUT_TIME), None)
    assert precision.ratio == pytest.approx(0.6, abs=0.01)


def test_probes_of_the_search_are_not_compared_with_rounds_that_ran_in_slower_minutes(tmp_path):
    launcher = FakeLauncher(machine=Machine(**IDLE))
    rate = launcher.throughput(WINNER)
    seen = trial(measured(0.6 * 1.3 * rate), 0, "search", **WINNER.values | {"amp_dtype": None})
    own = trial(measured(1.3 * rate), 1, "search", **WINNER.values)

    answer, _ = ablated(tmp_path, launcher, rounds_of_time=0, known=(seen, own))

    (precision,) = [one for one in answer.changes if "amp_dtype" in one.values]
    assert precision.ratio == pytest.approx(0.6, abs=0.01)


def test_with_little_time_left_the_baseline_rests_and_the_answer_still_knows_its_gain(tmp_path):
    launcher = FakeLauncher(machine=Machine(**IDLE))
    rate = launcher.throughput(WINNER)
    seen = trial(measured(0.6 * rate), 0, "search", **WINNER.values | {"amp_dtype": None})
    own = trial(measured(rate), 1, "search", **WINNER.values)

    answer, first = ablated(tmp_path, launcher, rounds_of_time=4.5, known=(seen, own))

    rounds = {one.config: len(one.rounds) for one in answer.confirmations}
    before = {one.config: len(one.rounds) for one in first.confirmations}
    assert answer.params == config(64, amp_dtype="bfloat16").values
    (baseline,) = (one.config for one in first.confirmations if one.config.values == first.baseline)
    assert rounds[baseline] == before[baseline]
    assert first.speedup_low > 1 and answer.speedup_low > 1


@pytest.mark.parametrize(("repeats", "are_together"), [((0.5, 0.5, 0.5), False), ((0.4, 0.5, 0.6), True)])
def test_what_gains_less_than_single_probes_may_differ_by_chance_is_taken_back_together(
    tmp_path, repeats, are_together
):
    launcher = FakeLauncher(machine=Machine(**IDLE))
    changes = ({}, {"channels_last": False}, {"num_workers": 0}, {"amp_dtype": None})
    probes = [(rate, WINNER.values | values) for rate, values in zip((1.0, 0.92, 0.92, 0.5), changes, strict=True)]
    probes += [(rate, config(32, gradient_accumulation_steps=2).values) for rate in repeats]
    rate = launcher.throughput(WINNER)
    known = [trial(measured(share * rate), at, "search", **values) for at, (share, values) in enumerate(probes)]

    answer, _ = ablated(tmp_path, launcher, known=known)

    ran = {one.config for one in answer.confirmations}
    alone = {config(**WINNER.values | values) for values in changes[1:3]}
    assert config(64, amp_dtype="bfloat16") in ran
    assert alone.isdisjoint(ran) is are_together
    assert answer.params == config(64, amp_dtype="bfloat16").values


def test_what_cannot_fit_without_a_change_is_not_tried_and_said(tmp_path):
    launcher = FakeLauncher(machine=Machine(**IDLE))
    exhausted = trial(failed(), batch_size=32, gradient_accumulation_steps=2, num_workers=4, channels_last=True)

    answer, _ = ablated(tmp_path, launcher, learned=[exhausted])

    (change,) = [one for one in answer.changes if "amp_dtype" in one.values]
    assert (change.kept, change.ratio, change.untested) == (True, None, notice(Code.CHANGE_NEEDS_MEMORY))


def test_what_fails_without_a_change_keeps_it(tmp_path):
    full = config(64, num_workers=4, channels_last=True)
    launcher = FakeLauncher(
        machine=Machine(**IDLE),
        faults={ProbeRequest: lambda asked: Outcome.OOM_DEVICE if asked.config == full else None},
    )

    answer, _ = ablated(tmp_path, launcher)

    (change,) = [one for one in answer.changes if "amp_dtype" in one.values]
    assert answer.params["amp_dtype"] == "bfloat16"
    assert change.kept and "out of memory" in change.untested.text


def test_what_the_limits_leave_out_is_not_taken_back(tmp_path):
    baseline = config(64, gradient_accumulation_steps=2)  # of another global batch than is held

    answer, _ = ablated(tmp_path, FakeLauncher(), baseline=baseline)

    (change,) = [one for one in answer.changes if "batch_size" in one.values]
    assert change.kept and "128" in change.untested.text and "64 is held" in change.untested.text


def test_a_single_change_takes_no_more_probes_for_the_race_has_measured_it(tmp_path):
    launcher = FakeLauncher()

    answer, first = ablated(tmp_path, launcher, winner=config(64, amp_dtype="bfloat16"))

    assert answer.probes == first.probes == 2 * len(answer.confirmations[0].rounds)
    assert _worths(answer)["amp_dtype"] == (True, pytest.approx(1 / first.speedup, rel=1e-3))


def test_where_memory_is_sought_what_saves_memory_stays(tmp_path):
    winner = config(8, gradient_accumulation_steps=8, num_workers=4, channels_last=False)
    goal = Goal(global_batch=64, objective="memory", objective_options={"within": 0.9})

    answer, first = ablated(tmp_path, FakeLauncher(machine=Machine(**IDLE)), winner=winner, goal=goal)

    assert first.params == winner.values
    assert (answer.params["batch_size"], answer.params["num_workers"]) == (8, 0)
    assert next(one for one in answer.changes if "batch_size" in one.values).memory_ratio > 1.5


def test_a_winner_that_fails_now_is_not_recommended(tmp_path):
    listener = Listener()

    answer, first = ablated(tmp_path, Failing(WINNER), listener)

    assert first.params == WINNER.values != answer.params
    (told,) = [note for note in listener.notes if "failed when it was measured again" in note]
    assert told.endswith("another configuration is recommended.")


@pytest.mark.parametrize("at", [1, 4, 8])
@pytest.mark.parametrize(("fault", "said"), [(KeyboardInterrupt(), "Interrupted"), (EnvironmentUnfit("No GPU."), "No")])
def test_whatever_stops_it_the_recommendation_stands(tmp_path, fault, said, at):
    listener = Listener()

    answer, first = ablated(tmp_path, Failing(fault, at, machine=Machine(**IDLE)), listener)

    assert answer.params == first.params
    assert "recommendation stands" in listener.notes[-1] and said in listener.notes[-1]
    assert all(one.kept for one in answer.changes)
    assert read_best(tmp_path / disk.BEST) == answer


class Disturbed(FakeLauncher):
    """A fake machine on which others take half of the time of every probe of the ablation."""

    def run(self, request, folder):
        answer = super().run(request, folder)
        if not isinstance(request, ProbeRequest) or request.purpose != "ablation":
            return answer
        shared = HostInterference(run_queue_wait_share=0.5, foreign_cores=1.0)
        return msgspec.structs.replace(
            answer, measurement=msgspec.structs.replace(answer.measurement, interference=shared)
        )


@pytest.mark.parametrize("left", [0.5, 1.5])
def test_a_repeat_has_to_have_time_for_the_pause_before_it(tmp_path, left):
    search = context(tmp_path, Disturbed(), listener := Listener())
    for _ in range(2):
        probe_with_repeat(search, WINNER, "confirm")
    one = search.history.times.expected_seconds(search.budget.round_probe_budget, WINNER)
    search = dataclasses.replace(search, budget=TimeBudget(search.history, one + left * BACK_OFF_SECONDS, float, 0.0))

    _Ablation(search, (), WINNER)._probe(WINNER)

    assert any("no time for another try" in note for note in listener.notes) is (left < 1)


def _reversion(name, **values):
    return Reversion(knobs=(name,), config=config(**WINNER.values | values))


def test_what_a_change_is_expected_to_be_worth_is_known_from_probes_that_differ_in_it_alone(tmp_path):
    layout = {"amp_dtype": "bfloat16", "num_workers": 4, "channels_last": False}
    trials = [
        trial(measured(100), 0, "baseline", batch_size=64),
        trial(measured(200), 1, **WINNER.values),
        trial(measured(199), 2, **{**WINNER.values, **layout}),
        trial(measured(120), 3, batch_size=64, amp_dtype="bfloat16", num_workers=8),
        trial(measured(90), 4, batch_size=64, num_workers=8),
    ]
    scores = search_scores(context(tmp_path, trials=trials).history)
    reversions = [
        _reversion("channels_last", channels_last=False),  # the winner itself was probed without it
        _reversion("amp_dtype", amp_dtype=None),  # others were
        _reversion("num_workers", num_workers=0),  # nobody was
    ]

    seen = [seen_slowdown(one, WINNER, scores, config(64)) for one in reversions]

    assert seen == [pytest.approx(1 / 200), pytest.approx(1 / 4), None]


def test_what_others_spoiled_tells_nothing_of_a_change_unless_they_spoiled_nearly_all(tmp_path):
    """A fused update seemed to be worth 4.75 times, because a burst of other work met the two probes without it."""
    shared = HostInterference(run_queue_wait_share=0.47, foreign_cores=0.9)
    slow = measured(42)
    spoiled = msgspec.structs.replace(slow, measurement=msgspec.structs.replace(slow.measurement, interference=shared))
    without = config(**{**WINNER.values, "channels_last": False})
    burst = [trial(measured(100), 0, "baseline", batch_size=64), trial(measured(200), 1, **WINNER.values)]
    burst.append(trial(spoiled, 2, **without.values))
    throughout = [trial(spoiled, number, **one.values) for number, one in enumerate((config(64), WINNER, without))]

    fast = msgspec.structs.replace(
        spoiled, measurement=msgspec.structs.replace(measured(300).measurement, interference=shared)
    )
    fastest = [*burst[:2], trial(fast, 2, **without.values)]

    assert without not in search_scores(context(tmp_path / "burst", trials=burst).history)
    assert without in search_scores(context(tmp_path / "fastest", trials=fastest).history)  # slowed, and still so fast
    assert without in search_scores(context(tmp_path / "throughout", trials=throughout).history)


def test_after_a_search_no_change_of_the_answer_is_unmeasured(tmp_path):
    listener = Listener()

    answer = searched(tmp_path, FakeLauncher(facts=declared()), listener, probes=6, **LONG)

    study = load_view(tmp_path)
    assert answer.changes and all(one.ratio is not None for one in answer.changes)
    assert answer == study.recommendation and answer.probes == len(study.trials)
    purposes = [one.purpose for one in study.trials]
    assert "ablation" in purposes and purposes == sorted(purposes, key=lambda purpose: purpose == "ablation")


def test_ctrl_c_leaves_the_answer_and_a_resume_knows_what_was_run(tmp_path):
    whole, cut, again = Listener(), Listener(), Listener()
    searched(tmp_path / "whole", FakeLauncher(facts=declared()), whole, probes=6, **LONG)
    first = [one.purpose for one in whole.trials].index("ablation")

    answer = searched(tmp_path / "cut", Interrupted(first + 3, facts=declared()), cut, probes=6, **LONG)
    searched(tmp_path / "cut", FakeLauncher(facts=declared()), again, probes=3, **LONG)

    assert cut.answer == answer and cut.stopped is None
    assert [one.purpose for one in cut.trials].count("ablation") == 2
    known = {one.config for one in cut.trials}
    assert not known & {one.config for one in again.trials if one.purpose == "search"}


@pytest.mark.parametrize("at", [2, 9])
def test_an_ablation_that_was_killed_goes_on_where_it_was(tmp_path, at):
    whole, first, second = Listener(), Listener(), Listener()
    expected = searched(tmp_path / "whole", FakeLauncher(facts=declared()), whole, probes=6, **LONG)
    with pytest.raises(SystemExit):
        searched(tmp_path / "cut", Failing(SystemExit(9), at, facts=declared()), first, probes=6, **LONG)

    answer = searched(tmp_path / "cut", FakeLauncher(facts=declared()), second, probes=6, **LONG)

    assert {one.purpose for one in second.trials} == {"ablation"}
    ran = [sum(one.purpose == "ablation" for one in each.trials) for each in (whole, first, second)]
    candidates = 1 + len(expected.changes) + 1
    assert ran[1] + ran[2] < ran[0] + candidates  # less than one round is lost
    assert answer.params == expected.params
    assert all(one.ratio is not None for one in answer.changes)


def test_an_answer_that_is_open_again_is_not_said_to_have_dropped_its_changes(tmp_path):
    """As seen beside a load: "Dropped, without a measurable gain: batch_size 2048x1", and then "undecided"."""
    listener, baseline = Listener(), config(64)
    rounds = SimpleNamespace(winner=WINNER, candidates={WINNER: ConfigSummary(config=WINNER)})
    new = SimpleNamespace(params=baseline.values, baseline=baseline.values)
    taken = [Reversion(knobs=("channels_last",), config=config(64, amp_dtype="bfloat16", num_workers=4))]

    _tell_dropped(context(tmp_path, listener=listener), rounds, taken, new)

    assert listener.notes == ["With these rounds it is open again whether the recommendation gains anything."]


def _after_one_round(folder, probes, winner):
    """An ablation in whose only round the last two of `probes` ran."""
    rounds = _Ablation(context(folder, trials=probes), (), winner)
    for one in probes[2:]:
        verdict = good(one.result.measurement.samples_per_second)
        rounds.candidates[one.config] = ConfigSummary(
            config=one.config, trials=(one,), verdicts=(verdict,), rounds=(0,)
        )
    return rounds


@pytest.mark.parametrize(
    ("searched_at", "without", "loses"), [(98.0, 99.0, False), (70.0, 99.0, True), (98.0, 80.0, True)]
)
def test_where_there_was_time_for_one_round_only_the_probes_of_the_search_count_too(
    tmp_path, searched_at, without, loses
):
    other = config(**WINNER.values | {"channels_last": False})
    probes = [
        trial(measured(100.0), 0, "search", **WINNER.values), trial(measured(searched_at), 1, "search", **other.values),
        trial(measured(100.0), 2, "ablation", **WINNER.values), trial(measured(without), 3, "ablation", **other.values),
    ]  # fmt: skip
    rounds = _after_one_round(tmp_path, probes, WINNER)

    assert (rounds.has(other), rounds.has_enough(other)) == (True, False)
    assert rounds.loses(other) is loses


@pytest.mark.parametrize(
    ("searched_at", "repeats", "loses"),
    [((98.0, 97.0), (), False), ((85.0, 86.0), (), True), ((85.0, 86.0), (40.0, 50.0, 60.0), False)],
    ids=["as fast", "slower", "slower by less than the noise"],
)
def test_rounds_that_do_not_decide_are_read_with_the_probes_of_the_search(tmp_path, searched_at, repeats, loses):
    """What they show beyond the noise of all repeats counts; `repeats` are those of another configuration."""
    other = config(**WINNER.values | {"channels_last": False})
    rates = {WINNER: (100.0, 100.0, 100.0, 104.0), other: (*searched_at, 99.0, 98.0)}  # two of the search, two rounds
    probes = [
        trial(measured(rate), 0, "ablation" if place > 1 else "search", **one.values)
        for one, own in rates.items() for place, rate in enumerate(own)
    ]  # fmt: skip
    probes += [trial(measured(rate), number, "confirm", batch_size=32) for number, rate in enumerate(repeats, 8)]
    rounds = _Ablation(context(tmp_path, trials=probes), (), WINNER)
    for one, (_, _, *own) in rates.items():
        ran = tuple(probe for probe in probes if probe.config == one and probe.purpose == "ablation")
        rounds.candidates[one] = ConfigSummary(config=one, trials=ran, verdicts=tuple(map(good, own)), rounds=(0, 1))

    assert rounds.has_enough(other)
    assert not rounds.comparison.loses(other)
    assert rounds.loses(other) is loses


@pytest.mark.parametrize(
    ("without", "loses"), [((98.0, 97.0), True), ((98.0, 97.0, 99.0), False)], ids=["two rounds", "three rounds"]
)
def test_three_rounds_count_alone_for_the_winner_was_chosen_for_its_probes(tmp_path, without, loses):
    """As seen: a fused update was kept at 1.04 (0.90 to 1.20) in rounds, because one probe without it was slow."""
    other = config(**WINNER.values | {"channels_last": False})
    known = [trial(measured(rate), at, "search", **one.values) for at, (one, rate) in enumerate(
        [(WINNER, 130.0), (WINNER, 130.0), (other, 90.0), (other, 90.0)]
    )]  # fmt: skip
    probes = [trial(measured(rate), 4, "ablation", **other.values) for rate in without]
    own = [trial(measured(100.0), 4, "ablation", **WINNER.values) for _ in without]
    rounds = _Ablation(context(tmp_path, trials=[*known, *probes, *own]), (), WINNER)
    for one, ran, rates in ((WINNER, own, [100.0] * len(own)), (other, probes, without)):
        found = tuple(map(good, rates))
        rounds.candidates[one] = ConfigSummary(
            config=one, trials=tuple(ran), verdicts=found, rounds=tuple(range(len(ran)))
        )

    assert rounds.loses(other) is loses


@pytest.mark.parametrize(
    ("without", "loses"), [((127.0, 131.0, 159.0), False), ((120.0, 115.0, 200.0), True)], ids=["by chance", "probably"]
)
def test_more_than_five_per_cent_is_no_loss_where_rounds_scatter_by_far_more(without, loses):
    """As seen: a change was kept at 1.08 (0.74 to 1.58)."""
    other, rates = config(**WINNER.values | {"channels_last": False}), (129.0, 124.0, 220.0)
    ran = [
        ConfigSummary(
            config=one, trials=(trial(measured(100.0), 0, "ablation", **one.values),) * 3,
            verdicts=tuple(map(good, own)), rounds=(0, 1, 2),
        )
        for one, own in ((WINNER, rates), (other, without))
    ]  # fmt: skip

    assert WinnerComparison(ran, WINNER, study_request()).loses(other) is loses


def test_rounds_that_others_spoiled_throughout_are_no_evidence_of_a_change(tmp_path):
    """Probes that interference spoiled tell nothing where others did not have it, and there may be no others."""
    other = config(**WINNER.values | {"channels_last": False})
    slow, shared = measured(60.0), HostInterference(run_queue_wait_share=0.47, foreign_cores=0.9)
    spoiled = msgspec.structs.replace(slow, measurement=msgspec.structs.replace(slow.measurement, interference=shared))
    probes = [trial(measured(100.0 + at), at, "ablation", **WINNER.values) for at in range(4)]
    probes += [trial(spoiled, at, "ablation", **other.values) for at in (4, 5)]
    rounds = _Ablation(context(tmp_path, trials=probes), (), WINNER)
    for one, ran in ((WINNER, probes[:2]), (other, probes[4:])):
        found = tuple(good(100.0) for _ in ran)
        rounds.candidates[one] = ConfigSummary(config=one, trials=tuple(ran), verdicts=found, rounds=(0, 1))

    assert not rounds.loses(other)


@pytest.mark.parametrize(("knob", "loses"), [("channels_last", True), ("omp_wait_policy", False)])
def test_probes_outside_of_rounds_never_keep_an_environment_variable(tmp_path, knob, loses):
    winner = config(**WINNER.values | {"omp_wait_policy": "passive"})
    other = config(**winner.values | {knob: config()[knob]})
    probes = [
        trial(measured(100.0), 0, "search", **winner.values), trial(measured(60.0), 1, "search", **other.values),
        trial(measured(100.0), 2, "ablation", **winner.values), trial(measured(101.0), 3, "ablation", **other.values),
    ]  # fmt: skip
    rounds = _after_one_round(tmp_path, probes, winner)

    assert rounds.loses(other) is loses


@pytest.mark.parametrize(("faults", "is_kept"), [(0, False), (1_000_000, True)])
def test_a_variable_that_counted_page_faults_ask_for_needs_no_more_proof_than_another_change(tmp_path, faults, is_kept):
    """Without it processes differ by luck: in few rounds the interval never excludes that it is worth nothing."""
    winner = config(**WINNER.values | {"malloc": "glibc"})
    ran = measured(70.0)
    plain = msgspec.structs.replace(ran, measurement=msgspec.structs.replace(ran.measurement, page_faults=faults))
    search = context(tmp_path, trials=[trial(plain, 0, "baseline", **config(64).values)])
    rounds = _Ablation(search, (), winner)
    for one, own in {winner: (100.0, 101.0), WINNER: (99.0, 60.0)}.items():
        probes = tuple(trial(measured(rate), 0, "ablation", **one.values) for rate in own)
        verdicts = tuple(map(good, own))
        rounds.candidates[one] = ConfigSummary(config=one, trials=probes, verdicts=verdicts, rounds=(0, 1))

    assert rounds.comparison.loses(WINNER) is is_kept


@pytest.mark.parametrize(("usual", "own", "is_kept"), [(0.08, 0.0, True), (0.08, 0.08, False), (0.02, 0.0, False)])
def test_rounds_without_malloc_that_had_few_page_faults_by_chance_do_not_drop_it(tmp_path, usual, own, is_kept):
    """As seen with `digits_cnn`: three of its four processes had none, where most had thousands in each step."""
    winner = config(**WINNER.values | {"malloc": "glibc"})
    search = context(tmp_path, trials=[trial(_faulting(70.0, usual), 0, "baseline", **config(64).values)])
    rounds = _Ablation(search, (), winner)
    for one, rates in {winner: (100.0, 101.0, 102.0), WINNER: (99.0, 101.0, 102.0)}.items():
        probes = tuple(trial(_faulting(rate, own), 0, "ablation", **one.values) for rate in rates)
        verdicts = tuple(map(good, rates))
        rounds.candidates[one] = ConfigSummary(config=one, trials=probes, verdicts=verdicts, rounds=(0, 1, 2))

    assert rounds.comparison.loses(WINNER) is is_kept


KEEPING = config(**WINNER.values | {"malloc": "glibc"})


@pytest.mark.parametrize(
    ("usual", "own", "out"),
    [(0.08, 0.0, {WINNER}), (0.08, 0.08, set()), (0.02, 0.0, {KEEPING})],
    ids=["by luck", "not by luck", "faults say nothing"],
)
def test_a_finalist_without_malloc_is_not_recommended_for_its_luck_with_page_faults(tmp_path, usual, own, out):
    """As seen with `digits_cnn`: both ran the same rounds, as fast as each other, and fewer changes were preferred."""
    search = context(tmp_path, trials=[trial(_faulting(70.0, usual), 0, "baseline", **config(64).values)])
    search = dataclasses.replace(search, space=space(on=environment(device="cpu", capability=None, mallocs=("glibc",))))
    measured_rates = {KEEPING: (100.0, 101.0, 102.0), WINNER: (99.0, 101.0, 102.0), config(64): (70.0, 71.0, 72.0)}
    finished = [
        ConfigSummary(
            config=one, trials=tuple(trial(_faulting(rate, own), 0, "confirm", **one.values) for rate in own_rates),
            verdicts=tuple(map(good, own_rates)), rounds=(0, 1, 2),
        )
        for one, own_rates in measured_rates.items()
    ]  # fmt: skip

    assert proven(search, finished) == measured_rates.keys() - out
    assert proven(search, finished[1:]) == measured_rates.keys() - {KEEPING}  # nothing with it ran


@pytest.mark.parametrize(
    ("usual", "without", "why"),
    [
        (0.08, (99.0, 101.0, 102.0), "spares page faults, 8% of a step"),
        (0.08, (80.0, 81.0, 82.0), None),  # rounds show the gain
        (0.08, (), "spares page faults, 8% of a step"),  # no time was left
        (0.02, (99.0, 101.0, 102.0), None),
    ],
)
def test_malloc_that_rounds_do_not_prove_is_kept_with_the_reason(tmp_path, usual, without, why):
    winner = config(**WINNER.values | {"malloc": "glibc"})
    search = context(tmp_path, trials=[trial(_faulting(70.0, usual), 0, "baseline", **config(64).values)])
    rounds = _Ablation(search, (), winner)
    for one, rates in {winner: (100.0, 101.0, 102.0), WINNER: without}.items():
        probes = tuple(trial(_faulting(rate, 0.0), 0, "ablation", **one.values) for rate in rates)
        numbers, verdicts = tuple(range(len(rates))), tuple(map(good, rates))
        rounds.candidates[one] = ConfigSummary(config=one, trials=probes, verdicts=verdicts, rounds=numbers)

    (change,) = rounds.comparison.changes([Reversion(knobs=("malloc",), config=WINNER)], winner.values)

    assert (change.reason and change.reason.text) == why


def _faulting(rate, share):
    """A result at this rate, with page faults in this share of its steps."""
    ran = measured(rate)
    faults = round(share * sum(ran.measurement.step_seconds) / FAULT_SECONDS)
    return msgspec.structs.replace(ran, measurement=msgspec.structs.replace(ran.measurement, page_faults=faults))


@pytest.mark.parametrize(("rates", "is_kept"), [((130.0, 131.0), True), ((130.0, 100.0), False)])
def test_a_variable_that_is_not_surely_faster_in_the_confirmation_is_not_recommended(tmp_path, rates, is_kept):
    winner = config(**WINNER.values | {"omp_wait_policy": "passive"})
    search = dataclasses.replace(context(tmp_path), space=space(on=environment(device="cpu", capability=None)))
    measured_rates = {winner: rates, WINNER: (100.0, 101.0), config(64): (50.0, 50.5)}
    finished = [
        ConfigSummary(
            config=one, trials=tuple(trial(measured(rate), 0, "confirm", **one.values) for rate in own),
            verdicts=tuple(map(good, own)), rounds=(0, 1),
        )
        for one, own in measured_rates.items()
    ]  # fmt: skip

    assert proven(search, finished) == measured_rates.keys() - (set() if is_kept else {winner})
    assert proven(search, [finished[0], finished[2]]) == {winner, config(64)}  # nothing without it ran


def test_rounds_do_not_change_what_page_faults_say(tmp_path):
    def counted(share, number, purpose):
        return trial(_faulting(100.0, share), number, purpose, **config(64).values)

    before = context(tmp_path / "before", trials=[counted(0.06, 0, "baseline")]).history
    after = context(tmp_path / "after", trials=[counted(0.06, 0, "baseline"), counted(0.01, 1, "ablation")]).history

    assert evident_knobs(before) == evident_knobs(after) == ["malloc"]
