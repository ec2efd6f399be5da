"""How much of the time budget is kept for the confirmation, and for the precision check before it."""

import pytest

from autotune.answer.choice import FEWEST_FINALISTS
from autotune.answer.confirmation_rounds import FEWEST_ROUNDS, GOAL_ROUNDS, probe_count
from autotune.context.budget import TimeBudget
from autotune.context.probe_budgets import BRIEF, LEAST
from autotune.context.time_shares import MOST_ABLATION, MOST_RESERVED
from autotune.core.records import Goal
from autotune.core.requests import ProbeBudget
from autotune.study.history import History
from autotune.testing import FakeLauncher, Machine
from autotune.tuning.opening import shortage
from autotune.tuning.probing import probe_with_retry
from tests.worlds import config, context, failed, measured, precise_finalists, study_request, trial

NO_LOADING = Machine(sample_loading_seconds=1e-6)
PLAIN = {"stability": "off"}


def _after(folder, workers, left=0.0):
    """A search after probes that are all alike but for their workers, the first one being the baseline."""
    goal = Goal(global_batch=64, **PLAIN)
    search = context(folder, FakeLauncher(machine=NO_LOADING), request=study_request(goal=goal), left=left)
    probe_with_retry(search, search.request.baseline, "baseline")
    for count in workers:
        probe_with_retry(search, config(batch_size=64, num_workers=count), "search")
    return search


@pytest.mark.parametrize(("workers", "finalists"), [((), 1), ((1, 2), 3), ((1, 2, 4, 8), 5)])
def test_time_is_kept_for_eight_brief_rounds_of_all_who_would_race_now(tmp_path, workers, finalists):
    search = _after(tmp_path, workers)

    candidates = [search.request.baseline] * 2 + [config(batch_size=64, num_workers=count) for count in workers]
    seconds = search.budget.probe_seconds(candidates, BRIEF)
    assert search.budget.full_confirmation_seconds == pytest.approx(
        seconds * probe_count(finalists, GOAL_ROUNDS, 1), rel=0.02
    )


def test_the_least_that_is_kept_are_two_rounds_of_the_fastest_and_the_baseline(tmp_path):
    search = _after(tmp_path, (1,))

    least, brief = (search.history.times.expected_seconds(probe_budget) for probe_budget in (LEAST, BRIEF))
    assert search.budget.shortest_confirmation_seconds == pytest.approx(4 * least, rel=0.1)
    assert search.budget.short_confirmation_seconds == pytest.approx(8 * brief, rel=0.1)
    assert search.budget.spare_seconds == -search.budget.shortest_confirmation_seconds


@pytest.mark.parametrize(("spare", "affords"), [(-0.1, False), (0.1, True)])
def test_a_search_affords_what_the_shortest_confirmation_leaves(tmp_path, spare, affords):
    known = _after(tmp_path / "known", (1,))
    needed = known.budget.shortest_confirmation_seconds + known.history.times.typical_seconds

    budget = TimeBudget(known.history, 600.0, lambda: 600.0 - needed - spare, 0.0)

    assert budget.affords_probe() is affords


def _budget(trials, seconds, elapsed=0.0, **request):
    history = History(study_request(**request), trials)
    return TimeBudget(history, seconds, lambda: elapsed + 5.0, 5.0)


BASELINE = trial(measured(100.0), 0, "baseline", batch_size=64)
THREE = [trial(measured(90.0), number, num_workers=number, batch_size=64) for number in (1, 2, 4)]
OFF = {"goal": Goal(global_batch=64, **PLAIN)}


def test_time_passes_by_the_clock_since_the_search_began():
    budget = _budget([BASELINE], 60.0, elapsed=45.0)

    assert (budget.elapsed_seconds, budget.left_seconds) == (45.0, 15.0)


def test_stages_get_their_shares_of_the_budget_as_far_as_they_are_spare():
    early, late = (_budget([BASELINE], 600.0, elapsed=elapsed, **OFF) for elapsed in (0.0, 590.0))

    assert (early.profile_seconds, early.prediction_seconds, early.waiting_seconds) == (20.0, 60.0, 60.0)
    assert late.profile_seconds == late.waiting_seconds == late.spare_seconds < 20.0
    assert late.prediction_seconds == 0.0  # half of a prediction tells nothing


def test_the_shortest_confirmation_is_kept_while_a_probe_can_come_before_it():
    enough, short = _budget([BASELINE], 600.0, **OFF), _budget([BASELINE], 600.0, elapsed=590.0, **OFF)

    assert enough.reserve_seconds == enough.shortest_confirmation_seconds > 0
    assert short.reserve_seconds == 0.0


@pytest.mark.parametrize(("rounds", "kept", "finalists"), [(2.1, True, 1), (1.6, False, 1), (0.9, False, 0)])
def test_time_is_kept_for_two_rounds_only_and_what_is_left_may_have_one(rounds, kept, finalists):
    probes = [BASELINE, THREE[0]]
    needed = _budget(probes, 60.0, **OFF).shortest_confirmation_seconds * rounds / FEWEST_ROUNDS

    budget = _budget(probes, 60.0, elapsed=60.0 - needed, **OFF)

    assert (budget.reserve_seconds > budget.late_seconds) is kept
    assert budget.finalists(5) == finalists
    assert budget.confirmation_plan([BASELINE.config, THREE[0].config], 1).rounds == (2 if kept else 1)


def test_rounds_that_may_end_late_are_confirmed_in_a_long_search():
    probes = [BASELINE, THREE[0]]
    left = 0.4 * _budget(probes, 600.0, **OFF).shortest_confirmation_seconds  # less than a round takes

    budget = _budget(probes, 600.0, elapsed=600.0 - left, **OFF)

    assert left + budget.late_seconds / 2 > budget.shortest_confirmation_seconds
    assert budget.finalists(5) == 1


def test_no_more_than_a_share_is_kept_until_three_can_be_confirmed():
    few, enough = (_budget([BASELINE, *THREE[:count]], 60.0, **OFF) for count in (1, 3))

    assert few.reserve_seconds == MOST_RESERVED * 60.0
    assert enough.reserve_seconds == enough.short_confirmation_seconds > MOST_RESERVED * 60.0


def test_time_is_kept_to_prove_the_variable_of_the_best_one():
    plain, keeping = ([BASELINE, *THREE[:2], trial(measured(200.0), 9, batch_size=64, num_workers=4, **variable)]
                      for variable in ({"channels_last": True}, {"malloc": "glibc"}))  # fmt: skip

    before, after = (_budget(probes, 60.0, **OFF) for probes in (plain, keeping))

    assert (before.proof_seconds, after.proof_seconds) == (0.0, after.shortest_confirmation_seconds / 2)
    assert after.reserve_seconds == pytest.approx(before.reserve_seconds + after.proof_seconds)


def test_what_failed_is_still_missing():
    budget = _budget([BASELINE, THREE[0], trial(failed(), 9, num_workers=8, batch_size=64)], 600.0)

    assert budget.missing_finalists == FEWEST_FINALISTS - 1


def _shortage(trials, seconds, probes, elapsed=0.0, **request):
    budget = _budget(trials, seconds, elapsed, **request)
    return shortage(budget, History(study_request(**request), trials), probes)


def test_a_short_budget_says_how_much_is_missing_and_what_would_do():
    over, minutes = _shortage([BASELINE, *THREE], 10.0, 2, elapsed=8.0, **OFF)

    assert over > 0
    assert _shortage([BASELINE, *THREE], 60.0 * minutes, 2, elapsed=8.0, **OFF) == (0.0, 0)


def test_a_check_of_precision_that_nobody_needs_asks_for_no_time():
    slow = [trial(measured(10.0), 0, batch_size=64)]
    domains = {**study_request().domains, "amp_dtype": (None,)}

    _, needed = _shortage(slow, 60.0, 6)
    _, plain = _shortage(slow, 60.0, 6, domains=domains)
    _, off = _shortage(slow, 60.0, 6, **OFF)

    assert 0 < plain < needed
    assert plain == off


TWO = [trial(measured(100.0), 0, batch_size=64), trial(measured(200.0), 1, batch_size=64, amp_dtype="bfloat16")]


def test_time_is_kept_for_a_comparison_only_while_one_may_come(tmp_path):
    domains = {**study_request().domains, "amp_dtype": (None, "bfloat16")}
    narrow = context(tmp_path, request=study_request(domains=domains), trials=TWO)
    off = _budget(TWO, 600.0, **OFF)
    plain = _budget(TWO, 600.0, domains={**domains, "amp_dtype": (None,)})

    command = _budget(TWO, 600.0, target="-- python train.py {bf16:flag=false}")

    searches = (_budget(TWO, 600.0), off, plain, command, narrow.budget)
    kept = [each.precision_check_seconds > 0 for each in searches]
    precise_finalists(narrow)

    assert kept == [True, False, False, True, True]
    assert narrow.budget.precision_check_seconds == 0.0


def test_the_time_for_a_comparison_follows_the_pace_of_the_fastest_probe_and_then_what_one_took(tmp_path):
    paces = (2400.0, 1200.0, 200.0, 1.0)
    before = [_budget([trial(measured(rate), 0, batch_size=64)], 600.0).precision_check_seconds for rate in paces]
    search = context(tmp_path, trials=TWO)

    precise_finalists(search)

    ((_, compared),) = search.history.precision_checks
    nothing_is_open = search.budget.precision_check_seconds
    search.history.add(trial(measured(190.0), 2, batch_size=64, amp_dtype="float16"))
    assert before == [
        pytest.approx(1.5 * 150 * 64 / 2400),
        pytest.approx(1.5 * 150 * 64 / 1200),
        pytest.approx(1.5 * 150 * 64 / 200),
        0.0,
    ]  # the last has no time for as many as say anything
    assert nothing_is_open == 0.0
    assert search.budget.precision_check_seconds == compared.elapsed_seconds


def _of(*, elapsed=0.0, seconds=600.0, **values):
    faster = trial(measured(200.0), 1, **{"batch_size": 64, **values})
    return _budget([BASELINE, faster], seconds, elapsed=elapsed, **OFF)


def test_time_is_kept_to_take_back_the_changes_of_who_is_best_so_far():
    two, three = {"amp_dtype": "bfloat16", "num_workers": 4}, {"channels_last": True}

    kept = [_of(**values).ablation_seconds for values in ({}, {"num_workers": 4}, two, {**two, **three})]

    assert kept[:2] == [0.0, 0.0]
    assert 0.0 < kept[2] < kept[3] < MOST_ABLATION * 600
    shares = [_of(**two, **three, seconds=seconds).ablation_seconds / seconds for seconds in (40.0, 150.0)]
    assert shares == [0.0, MOST_ABLATION]  # two rounds of two must fit


def test_the_race_leaves_the_time_of_the_ablation():
    two = {"amp_dtype": "bfloat16", "num_workers": 4}
    budget, nothing = _of(**two), _of(num_workers=4)

    assert budget.left_seconds - budget.confirmation_seconds == pytest.approx(budget.ablation_seconds) != 0
    assert nothing.left_seconds == nothing.confirmation_seconds
    assert budget.affords_round([BASELINE.config], ProbeBudget(), 590.0)
    assert not budget.affords_round([BASELINE.config], ProbeBudget(), 599.0)
