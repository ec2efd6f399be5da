"""Which arithmetic is not tried again: one that broke more often than it held, and what adds to it."""

import pytest

from autotune.sampler.stability import NumericalStability
from tests.worlds import config

BF16, PLAIN = {"amp_dtype": "bfloat16"}, {}
BROKE, HELD = False, True


def _noted(*probes):
    made = NumericalStability()
    for size, (values, is_stable) in enumerate(probes, 1):
        made.note(config(batch_size=size, **values), is_stable=is_stable)
    return made


@pytest.mark.parametrize(
    ("probes", "refused"),
    [
        ([(BF16, BROKE)], False),
        ([(BF16, BROKE), (BF16, BROKE)], True),
        ([(BF16, BROKE), (BF16, BROKE), (BF16, HELD), (BF16, HELD)], False),
        ([(BF16, HELD), (BF16, BROKE), (BF16, BROKE)], True),
        ([(PLAIN, BROKE), (PLAIN, BROKE)], True),  # whatever else is tried rounds more
        ([(PLAIN, BROKE), (PLAIN, BROKE), (PLAIN, HELD)], False),
        ([({"amp_dtype": "float16"}, BROKE), (BF16, BROKE)], False),
    ],
)
def test_an_arithmetic_is_refused_after_two_probes_that_broke(probes, refused):
    made = _noted(*probes)

    assert made.refuses(config(batch_size=512, **BF16)) is refused
    assert made.refuses(config(batch_size=512, tf32=True, **BF16)) is refused
    assert made.refuses(config(batch_size=512, amp_dtype="float16")) is (refused and probes[0][0] == PLAIN)


def test_what_a_comparison_of_losses_refused_is_not_tried_again():
    made = NumericalStability()

    made.refuse(BF16)

    assert made.refuses(config(**BF16)) and not made.refuses(config())
