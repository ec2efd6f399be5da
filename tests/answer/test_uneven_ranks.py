"""Ranks that do not do the same are told from a tenth on."""

import pytest
from msgspec.structs import replace

from autotune.answer.uneven_ranks import uneven_ranks
from autotune.core.codes import Code
from autotune.core.rank_reading import RankReading, imbalance
from tests.worlds import GIB, measured


def _measured(works, peaks=None):
    ranks = tuple(
        RankReading(step_seconds=(1.0,) * 4, loader_wait_seconds=(0.0,) * 4, busy_seconds=busy, memory_bytes=peak)
        for busy, peak in zip(works, peaks or (GIB,) * len(works), strict=True)
    )
    return replace(measured().measurement, ranks=ranks)


def test_the_imbalance_is_what_the_busiest_does_more_than_all_do_on_average():
    assert imbalance([1.0, 1.0]) == 0.0
    assert imbalance([1.0, 3.0]) == 0.5
    assert imbalance([0.0, 0.0]) == 0.0


def test_the_rank_that_works_longer_is_told():
    (found,) = uneven_ranks([_measured([(0.5,) * 4, (0.9,) * 4]), _measured([(0.6,) * 4, (0.9,) * 4])])

    assert found.code is Code.RANKS_UNEVEN
    assert "Rank 1 works 24% longer in a step than the 2 ranks do on average" in found.text


def test_a_rank_that_holds_more_is_told_also_where_nobody_knows_who_works():
    (found,) = uneven_ranks([_measured([(), ()], peaks=(3 * GIB, GIB))])

    assert found.code is Code.RANKS_MEMORY_UNEVEN
    assert "Rank 0 needs 50% more memory" in found.text


@pytest.mark.parametrize(
    "probes",
    [
        [((0.5,) * 4, (0.9,) * 4)],  # one alone: other processes may have slowed rank 1
        [((0.5,) * 4, (0.9,) * 4), ((0.6,) * 4, (0.6,) * 4)],
        [((0.5,) * 4, (0.9,) * 4), ((0.6,) * 4, (0.5,) * 4)],
    ],
)
def test_what_a_single_probe_says_of_the_work_is_not_told(probes):
    assert [*uneven_ranks([_measured(works) for works in probes])] == []


def test_a_tenth_is_not_told_and_neither_is_one_process():
    assert [*uneven_ranks([_measured([(0.5,) * 4, (0.59,) * 4])] * 2)] == []
    assert [*uneven_ranks([measured().measurement])] == []
