"""Speeds in words: an interval that says nothing is not printed as if it did."""

import pytest

from autotune.report.phrases import factor_phrase, range_phrase


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (16.7, 17.5, "16.7 to 17.5"),
        (0.5, 4.9, "0.50 to 4.90"),
        (0.28, 0.9967, "0.28 to 0.997"),  # what is slower is not said to reach 1
        (1.0004, 1.4, "1.0004 to 1.40"),
        (0.9967, 1.0004, "1.00 to 1.00"),
        (0.5, 5.0, "not known within a factor of 10"),
        (0.001, 6417.0, "not known within a factor of 10"),
        (0.0, 6417.0, "not known"),
        (1.0, float("inf"), ""),
        (None, 2.0, ""),
    ],
)
def test_ends_that_are_ten_times_apart_are_no_interval(low, high, words):
    assert range_phrase(low, high) == words


def test_the_factor_stays_with_what_is_known_of_it():
    assert factor_phrase(5.47, 0.001, 6417.0) == "5.47× (not known within a factor of 10)"
    assert factor_phrase(5.47, None, None) == "5.47×"
