"""What the ranks of a command are compared by."""

import pytest

from autotune.child.ranks.rank_comparison import check_parameters, uneven_epochs
from autotune.core.records import RankFacts, SteppedParameter
from autotune.errors import TargetError


def _rank(*checksums, is_wrapped=False, batches=4, shape=(2,)):
    stepped = tuple(
        SteppedParameter(name=f"Net.{number}", shape=shape, checksum=one, is_wrapped=is_wrapped)
        for number, one in enumerate(checksums)
    )
    return RankFacts(stepped=stepped, epoch_batches=batches)


def test_the_parameters_and_the_ranks_that_differ_are_named():
    with pytest.raises(TargetError, match=r"rank 1 and 3 have other values of Net\.1, Net\.2 than rank 0"):
        check_parameters([_rank(1, 2, 3), _rank(1, 5, 3), _rank(1, 2, 3), _rank(1, 2, 4)])


def test_a_wrapped_parameter_has_another_cause():
    with pytest.raises(TargetError, match=r"Net\.0, Net\.1, Net\.2, and 1 more .*Call the wrapped model"):
        check_parameters([_rank(1, 2, 3, 4, is_wrapped=True), _rank(5, 6, 7, 8, is_wrapped=True)])


@pytest.mark.parametrize(
    "others",
    [_rank(1, 2), _rank(1, None), _rank(5, 6, 7), _rank(5, 6, shape=(3,)), _rank()],
    ids=["equal", "without a gradient", "more of them", "of another shape", "none"],
)
def test_what_need_not_be_equal_is_not_compared(others):
    check_parameters([_rank(1, 2), others])


@pytest.mark.parametrize(("batches", "is_told"), [((4, 4), False), ((4, 3), True), ((4, 0), False)])
def test_epochs_that_are_known_to_differ_are_told(batches, is_told):
    found = list(uneven_epochs([_rank(1, batches=count) for count in batches]))

    assert bool(found) is is_told
    assert list(uneven_epochs([_rank(batches=count) for count in batches])) == []
