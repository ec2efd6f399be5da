"""The chart of ranks over time."""

import dataclasses

from msgspec.structs import replace

from autotune.core.rank_reading import RankReading
from autotune.report.chart import Absence, Chart
from autotune.report.ranks_chart import COLUMNS, MOST_RANKS, ranks
from tests.reporting import GIB, config, measured, trial, view


def _view(works, count=None, steps=4):
    readings = tuple(
        RankReading(
            step_seconds=(1.0,) * steps, loader_wait_seconds=(0.1,) * steps, busy_seconds=(work,) * steps,
            memory_bytes=GIB,
        )
        for work in works
    )  # fmt: skip
    result = measured(100)
    result = replace(result, measurement=replace(result.measurement, ranks=readings))
    found = view((trial(0, config(), result, "baseline"),), None)
    of_ranks = replace(found.request, facts=replace(found.request.facts, ranks=count or len(works)))
    return dataclasses.replace(found, request=of_ranks)


def test_each_rank_has_a_row_and_the_busiest_is_named():
    chart = ranks(_view((0.4, 0.8)))

    assert isinstance(chart, Chart)
    assert chart.takeaway == "rank 1 works 33% longer than all do on average, and the others wait for it"
    assert chart.table.rows == (("rank 0", "40%", "10%", "1 GiB"), ("rank 1", "80%", "10%", "1 GiB"))
    assert chart.svg().count("<title>rank 0: working 40%") == 4


def test_even_ranks_are_said_to_be_even():
    assert ranks(_view((0.80, 0.84))).takeaway.startswith("the 2 ranks work alike: the busiest 2% longer")


def test_many_blocks_and_many_ranks_are_put_together():
    svg = ranks(_view((0.5,) * (MOST_RANKS + 3), steps=10 * COLUMNS + 1)).svg()

    assert svg.count("<title>rank 0:") <= COLUMNS
    assert svg.count('class="strong"') == MOST_RANKS
    assert f"the busiest {MOST_RANKS} of {MOST_RANKS + 3} ranks" in svg


def test_one_process_has_no_such_chart_and_the_page_does_not_speak_of_it():
    absent = ranks(_view((0.5,)))

    assert isinstance(absent, Absence)
    assert not absent.is_told
