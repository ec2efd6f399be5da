"""Which probes of a confirmation that was interrupted count when it is resumed."""

import pytest

from autotune.answer.resumed_confirmation import ResumedConfirmation, interrupted
from autotune.core.results import Outcome
from autotune.study.valid_probes import Judged
from tests.worlds import bad, config, failed, good, measured, trial

BATCHES = {"A": 8, "B": 16, "C": 32, "base": 64}
BASE = config(batch_size=64)


def _configs(names):
    return [config(batch_size=BATCHES[name]) for name in names.split()]


def _judged(names, purpose="confirm", first=0):
    return [
        Judged(trial(measured(), number=first + number, purpose=purpose, batch_size=BATCHES[name]), good(1.0))
        for number, name in enumerate(names.split())
    ]


def _after_a_search(names):
    return [*_judged("base", "baseline"), *_judged("A B C", "search", 1), *_judged(names, first=4)]


def _numbers(found):
    return None if found is None else [one.number for one, _ in found]


def test_whole_rounds_of_the_same_race_count_and_a_part_of_one_does_not():
    before = ResumedConfirmation(_after_a_search("A B C base base C B A A B"), baseline=BASE)

    rounds = [before.round(_configs(names)) for names in ("A B C base", "base C B A", "A B C base")]

    assert [_numbers(found) for found in rounds] == [[4, 5, 6, 7], [8, 9, 10, 11], None]


def test_a_part_that_was_run_anew_in_a_later_run_is_passed_over():
    before = ResumedConfirmation(_after_a_search("A B C base base C base C B A A"), baseline=BASE)

    rounds = [before.round(_configs(names)) for names in ("A B C base", "base C B A")]

    assert [_numbers(found) for found in rounds] == [[4, 5, 6, 7], [10, 11, 12, 13]]


@pytest.mark.parametrize("names", ["A B base", "B A C base"])
def test_no_round_is_of_use_where_others_race_or_in_another_order(names):
    before = ResumedConfirmation(_after_a_search("A B C base base C B A"), baseline=BASE)

    found = before.round(_configs(names))

    assert found is None
    assert not before
    assert before.round(_configs("A B C base")) is None


def test_of_an_accident_and_its_repeat_the_repeat_counts():
    judged = _after_a_search("A A B base")
    crashed = trial(failed(Outcome.CRASHED), number=4, purpose="confirm", batch_size=BATCHES["A"])
    judged[4] = Judged(crashed, bad("crashed"))

    found = ResumedConfirmation(judged, baseline=BASE).round(_configs("A B base"))

    assert _numbers(found) == [5, 6, 7]


@pytest.mark.parametrize(
    ("names", "finalists"),
    [("A B", ""), ("A B base", "A B"), ("B A base base", "B A"), ("A B C base base C B A A C base", "A B C"), ("", "")],
)
def test_the_first_whole_round_tells_who_raced_beside_the_baseline(names, finalists):
    assert ResumedConfirmation(_after_a_search(names), baseline=BASE).finalists == _configs(finalists)


def test_a_confirmation_that_came_to_its_answer_was_not_broken_off():
    judged = _after_a_search("A B base base B A")

    assert ResumedConfirmation(judged, len(judged), BASE).round(_configs("A B base")) is None
    again = ResumedConfirmation([*judged, *_judged("A B base", first=10)], len(judged), BASE)
    assert _numbers(again.round(_configs("A B base"))) == [10, 11, 12]


def test_a_search_that_went_on_since_has_no_confirmation_that_was_broken_off():
    assert not ResumedConfirmation([*_after_a_search("A B base"), *_judged("C", "search", 7)], baseline=BASE)


def test_a_baseline_that_was_measured_again_alone_raced_nobody():
    assert not ResumedConfirmation([*_judged("base", "baseline"), *_judged("base base", first=1)], baseline=BASE)


def _with_failures(judged, *positions):
    return [
        Judged(one, bad("no memory") if place in positions else verdict) for place, (one, verdict) in enumerate(judged)
    ]


def test_a_race_in_which_all_failed_is_over():
    judged = _after_a_search("A B base")

    assert not ResumedConfirmation(_with_failures(judged, len(judged) - 3, len(judged) - 2), baseline=BASE)


def test_a_race_goes_on_after_one_that_failed_last():
    judged = _after_a_search("A B C base base C B A A B C")

    before = ResumedConfirmation(_with_failures(judged, len(judged) - 1), baseline=BASE)

    assert before.finalists == _configs("A B C")
    assert _numbers(before.round(_configs("A B C base"))) == [4, 5, 6, 7]


def test_an_ablation_that_was_broken_off_goes_on_behind_its_whole_race():
    judged = _after_a_search("A B base base B A")
    answered = len(judged)
    rounds = _judged("A C base base C", "ablation", answered)

    race, ablation = interrupted([*judged, *rounds], answered, BASE)

    assert race.finalists == _configs("A B")
    assert ablation.finalists == _configs("A C")
    assert [_numbers(ablation.round(_configs("A C base"))), ablation.round(_configs("base C A"))] == [
        [10, 11, 12],
        None,
    ]


@pytest.mark.parametrize("since", ["", "C"])
def test_an_ablation_that_was_interrupted_or_searched_past_is_over(since):
    judged = [*_after_a_search("A B base base B A"), *_judged("A C base", "ablation", 10)]
    answered = len(judged) if not since else len(judged) - 3

    race, ablation = interrupted([*judged, *_judged(since, "search", 13)], answered, BASE)

    assert not race and not ablation
