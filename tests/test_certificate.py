"""Of what was not measured, no more is said than is known."""

import pytest

from autotune.report.blocks import result_block
from autotune.tuning.exploration import bound, optimality
from tests.reporting import recommendation


def test_where_nothing_is_left_all_were_measured():
    assert optimality(1234, 0, 0.3) == (
        "all candidates measured: 1,234 configurations, and no other of the space is left that could fit and be faster"
    )


def test_a_believable_bound_is_told_with_its_percentage():
    assert optimality(9, 100, 0.042) == (
        "bounded by the fitted model: no other configuration is expected to be more than 4% faster (90 %)"
    )


@pytest.mark.parametrize("rest", [None, 1.0, float("inf")])
def test_without_one_the_rest_is_only_sampled(rest):
    assert optimality(9, 1191, rest).startswith("only sampled: 9 of 1,200 configurations")
    assert bound(rest) == ""


def test_a_single_one_was_probed():
    assert "1 of 40 configurations was probed" in optimality(1, 39, None)


def test_a_bound_is_no_finer_than_one_probe():
    assert bound(0.0001, "leaner") == "No other configuration is expected to be more than 1% leaner (90 %)."


def test_the_answer_tells_it():
    told = "only sampled: 9 of 1,200 configurations were probed"

    assert told in result_block(recommendation(certificate=told)).plain
