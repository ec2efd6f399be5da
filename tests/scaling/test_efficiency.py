"""The efficiency of a number of ranks, by a race of them with the global batch held."""

import pytest
from msgspec.structs import replace

from autotune.errors import UsageError
from autotune.races.records import RaceResult, Standing
from autotune.report.scale_text import scale_lines
from autotune.scaling.efficiency import ScaleResult, points_of, shared, verdict_at
from tests.worlds import config, environment


def _standing(size, rate, ratio=None, width=0.1):
    return Standing(
        label="", target="model.py", config=config(size), global_batch_size=64, samples_per_second=rate,
        relative_half_width=0.05, rounds=(rate,), trials=(0,), ratio=ratio, ratio_low=ratio and ratio * (1 - width),
        ratio_high=ratio and ratio * (1 + width),
    )  # fmt: skip


def _result(*standings, counts=(1, 2, 4), cores=8, has_batch_norm=False, interference=0):
    here = environment(device="cpu", device_name="Xeon", usable_cores=cores)
    race = RaceResult(
        folder="race", standings=standings, tolerance=0.02, ended="rounds", probes=9, with_interference=interference,
        seconds=60.0, environment=here, measured_at="",
    )  # fmt: skip
    return ScaleResult(
        target="model.py", global_batch_size=64, has_batch_norm=has_batch_norm, points=points_of(race, counts),
        environment=here, folder="race", seconds=60.0, probes=9, with_interference=interference,
    )  # fmt: skip


CURVE = (_standing(64, 100.0), _standing(32, 190.0, 1.9, 0.02), _standing(16, 300.0, 3.0, 0.02))


@pytest.mark.parametrize(
    ("whole", "size", "ranks", "own"),
    [(64, 64, 1, (64, 1)), (64, 64, 2, (32, 1)), (64, 16, 2, (16, 2)), (96, 64, 2, (48, 1)), (60, 16, 2, (15, 2))],
)
def test_ranks_share_the_global_batch_with_micro_batches_no_larger_than_today(whole, size, ranks, own):
    assert shared(whole, size, ranks) == own


def test_what_does_not_divide_is_refused_with_the_numbers():
    with pytest.raises(UsageError, match="The global batch is 64 samples, and 3 ranks cannot share it"):
        shared(64, 64, 3)


def test_efficiency_is_the_rate_over_that_of_as_many_single_ranks():
    one, two, four = _result(*CURVE).points

    assert (one.efficiency, two.efficiency, four.efficiency) == (1.0, pytest.approx(0.95), pytest.approx(0.75))
    assert two.efficiency_low == pytest.approx(0.931)
    assert two.samples_per_rank_hour == pytest.approx(95 * 3600)


def test_efficiency_is_by_the_smallest_number_where_one_rank_was_not_measured():
    first, second = _result(_standing(32, 190.0), _standing(16, 304.0, 1.6), counts=(2, 4)).points

    assert (first.efficiency, second.efficiency) == (1.0, pytest.approx(0.8))


def test_the_most_ranks_at_nine_tenths_are_recommended():
    result = _result(*CURVE)

    assert result.most_efficient.ranks == 2
    assert [verdict_at(one) for one in result.points] == ["efficient", "efficient", "wasteful"]
    assert scale_lines(result)[0] == (
        "model.py: 2 ranks are the most with at least 90% efficiency, with the global batch of 64 held (190 samples/s)."
    )


def test_an_interval_around_nine_tenths_leaves_it_undecided():
    result = _result(_standing(64, 100.0), _standing(32, 190.0, 1.9, 0.1), counts=(1, 2))

    assert "undecided whether 2 ranks reach 90% efficiency" in scale_lines(result)[0]


def test_fewer_ranks_that_are_surely_efficient_are_named_beside_those_that_may_be():
    result = _result(_standing(64, 100.0), _standing(32, 195.0, 1.95, 0.01), _standing(16, 370.0, 3.7, 0.1))

    assert "2 ranks surely reach 90% efficiency; undecided whether 4 ranks reach 90%" in scale_lines(result)[0]


def test_an_efficiency_by_another_number_than_one_rank_is_not_told_as_one_by_that():
    result = _result(_standing(32, 80.0), _standing(16, 120.0, 1.5), counts=(2, 4))

    assert "2 ranks are the most with at least 90% of the efficiency of 2 ranks," in scale_lines(result)[0]


def test_data_parallel_and_what_takes_its_place_are_told_with_both_rates():
    lines = "\n".join(scale_lines(replace(_result(*CURVE), has_data_parallel=True)))

    assert "torch.nn.DataParallel on all devices that it sees: 100 samples/s" in lines
    assert "DistributedDataParallel by 4 ranks: 300." in lines
    assert "DataParallel" not in "\n".join(scale_lines(_result(*CURVE)))


def test_batch_norm_few_cores_and_interference_are_said():
    lines = "\n".join(scale_lines(_result(*CURVE, cores=2, has_batch_norm=True, interference=3)))

    assert "BatchNorm sees the micro-batch of a rank, which is 64 and 32 and 16" in lines
    assert "4 ranks share 2 cores" in lines
    assert "3 of 9 probes had interference" in lines


def test_more_than_is_possible_is_doubted():
    lines = "\n".join(scale_lines(_result(_standing(64, 100.0), _standing(32, 300.0, 3.0), counts=(1, 2))))

    assert "An efficiency of 135% or more is not a gain of ranks" in lines
    assert "undecided whether 2 ranks reach 90% efficiency" in lines
    assert "are the most" not in lines
    assert "is not a gain of ranks" not in "\n".join(scale_lines(_result(*CURVE)))
