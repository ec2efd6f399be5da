"""The law of foretold memory: bounds, frontiers, and what measured peaks make of it."""

import math

import pytest

from autotune.core.results import Outcome
from autotune.memory.model import ON_DEVICE, ON_HOST, START_MARGIN, Arm, calibrated
from autotune.memory.records import ShapeRun
from tests.worlds import earlier

# Peaks of three phases: an optimizer step of 900 bytes, a backward of 500 + 20 b, a forward of 100 + 30 b.
TRUTH = {batch: max(900, 500 + 20 * batch, 100 + 30 * batch) for batch in (1, 4, 16, 64, 256, 1024)}
ARM = Arm(values={}, points=tuple(TRUTH.items()))


def _truth(batch):
    return max(900, 500 + 20 * batch, 100 + 30 * batch)


@pytest.mark.parametrize("batch", [1, 2, 8, 30, 40, 64, 100, 256])
def test_between_two_points_no_peak_is_underestimated(batch):
    assert ARM.peak_bytes(batch) >= _truth(batch)


@pytest.mark.parametrize("batch", [1100, 4096])
def test_beyond_the_last_point_the_last_line_goes_on(batch):
    assert ARM.peak_bytes(batch) == pytest.approx(_truth(batch))


def test_below_the_first_point_nothing_is_saved():
    arm = Arm(values={}, points=((8, 1000), (32, 4000)))

    assert arm.peak_bytes(1) == 1000


@pytest.mark.parametrize("batch", [16, 17, 64, 100, 256, 1000, 5000])
def test_the_frontier_is_where_the_peak_reaches_the_limit(batch):
    assert ARM.frontier(ARM.peak_bytes(batch)) == pytest.approx(batch)


def test_no_batch_fits_below_the_smallest_peak():
    assert ARM.frontier(899) == 0


def test_where_the_batch_costs_nothing_every_batch_fits():
    assert Arm(values={}, points=((8, 1000), (32, 1000))).frontier(1001) == math.inf


def test_an_arm_without_points_says_nothing():
    arm = Arm(values={}, reason=earlier("contents decide"))

    assert arm.peak_bytes(8) is None
    assert arm.frontier(1000) is None


@pytest.mark.parametrize(("points", "settled"), [(2, False), (3, False), (4, False), (5, False), (6, True)])
def test_a_climb_has_settled_when_its_last_two_slopes_agree(points, settled):
    climbed = Arm(values={}, points=tuple(TRUTH.items())[:points])

    assert climbed.settled is settled


def test_a_configuration_finds_the_arm_whose_values_it_has():
    found = ShapeRun(
        outcome=Outcome.OK,
        arms=(
            Arm(values={"amp_dtype": None}, points=((8, 100),)),
            Arm(values={"amp_dtype": "bfloat16"}, points=((8, 60),)),
        ),
    )

    assert found.peak_bytes({"amp_dtype": "bfloat16", "batch_size": 8, "num_workers": 4}) == 60
    assert found.peak_bytes({"amp_dtype": "float16", "batch_size": 8}) is None


def test_before_any_probe_the_process_of_the_shape_run_is_the_offset():
    expected = calibrated(300.0, [])

    assert (expected.offset_bytes, expected.ratio, expected.margin) == (300.0, 1.0, START_MARGIN)


def test_one_probe_moves_the_offset_and_hardly_the_ratio():
    corrected = calibrated(0.0, [(1000.0, 1400.0)])

    assert corrected.real(1000) == pytest.approx(1400, rel=0.01)
    assert corrected.ratio == pytest.approx(1, abs=0.03)


def test_probes_of_different_size_tell_offset_and_ratio_apart():
    peaks = [(predicted, 500 + 1.15 * predicted) for predicted in (1000.0, 4000.0, 16000.0)]

    corrected = calibrated(0.0, peaks)

    assert corrected.ratio == pytest.approx(1.15, abs=0.01)
    assert corrected.real(32000) == pytest.approx(500 + 1.15 * 32000, rel=0.01)


def test_where_less_was_needed_than_foretold_nothing_is_held_besides():
    corrected = calibrated(0.0, [(10_000.0, 7_000.0)])

    assert corrected.offset_bytes == 0
    assert corrected.real(10_000) == pytest.approx(7_000)
    assert corrected.real(100) > 0


def test_the_margin_narrows_with_probes_that_agree():
    peaks = [(predicted, 500 + predicted) for predicted in (1000.0, 2000.0, 4000.0, 8000.0)]

    assert calibrated(0.0, peaks).margin == pytest.approx(START_MARGIN / 2)


def test_the_margin_covers_the_largest_optimistic_residual():
    peaks = [(1000.0, 1000.0), (1001.0, 1600.0), (999.0, 1000.0)]

    corrected = calibrated(0.0, peaks)

    assert corrected.most(1001) >= 1600


MIB = 2**20
DENOISER = {16: 25.0, 32: 50.0, 64: 100.0}  # tensors in MiB; the process of its shape run held 354 (studies/surfaces)


def test_on_a_host_one_small_batch_does_not_say_that_a_larger_one_fits():
    """Of 608 MiB that may be used; 484 were measured at 16 samples, 535 at 32, and 64 ran out of memory."""
    known = [(DENOISER[16] * MIB, 484.0 * MIB)]

    trusting, cautious = (calibrated(354.0 * MIB, known, prior) for prior in (ON_DEVICE, ON_HOST))

    assert trusting.real(DENOISER[64] * MIB) < 570 * MIB
    assert cautious.real(DENOISER[32] * MIB) == pytest.approx(535 * MIB, rel=0.02)
    assert cautious.real(DENOISER[64] * MIB) > 608 * MIB


def test_before_any_probe_of_a_host_the_upper_end_is_what_processes_took():
    assert calibrated(242.0 * MIB, [], ON_HOST).most(50 * MIB) == pytest.approx((242 + 100 + 2.3 * 50) * MIB)


def test_before_any_probe_of_a_device_the_upper_end_is_the_margin():
    assert calibrated(242.0 * MIB, []).most(50 * MIB) == pytest.approx((242 + 50) * (1 + START_MARGIN) * MIB)


def test_far_from_the_one_peak_that_was_measured_the_upper_end_is_far_above_what_is_expected():
    known = calibrated(242.0 * MIB, [(158 * MIB, 500.0 * MIB)], ON_HOST)

    assert known.most(158 * MIB, probed=True) == pytest.approx(500 * MIB * (1 + START_MARGIN), rel=0.01)
    assert known.most(1200 * MIB, probed=True) > 1.15 * known.real(1200 * MIB)


def test_on_a_host_an_arm_that_was_not_probed_may_hold_more_for_each_byte_of_its_tensors():
    """`char_transformer`: 550 MiB at 32 in float32 are known; 128 with checkpointing, 206 MiB of tensors, took 732."""
    known = calibrated(243.0 * MIB, [(158 * MIB, 550.0 * MIB)], ON_HOST)

    assert known.real(206 * MIB) < known.most(206 * MIB, probed=True) < 732 * MIB < known.most(206 * MIB)


def test_on_a_device_all_arms_need_what_their_tensors_do():
    known = calibrated(500.0 * MIB, [(8000 * MIB, 9000.0 * MIB)])

    assert known.most(4000 * MIB) == known.most(4000 * MIB, probed=True)


def test_peaks_of_different_size_draw_the_upper_end_nearer():
    one, two = [(158 * MIB, 500.0 * MIB)], [(158 * MIB, 500.0 * MIB), (600 * MIB, 1100.0 * MIB)]

    excess = [
        k.most(1200 * MIB) / k.real(1200 * MIB) for k in (calibrated(242.0 * MIB, p, ON_HOST) for p in (one, two))
    ]

    assert excess[1] < excess[0]


@pytest.mark.parametrize("prior", [ON_DEVICE, ON_HOST], ids=["device", "host"])
def test_what_is_foretold_says_nothing_of_what_was_measured(prior):
    alone = calibrated(1000.0 * MIB, [], prior)
    informed = calibrated(1000.0 * MIB, [(500.0 * MIB, 1.1 * alone.real(500.0 * MIB))], prior)

    assert informed.real(500 * MIB) == pytest.approx(1.1 * alone.real(500 * MIB), rel=0.01)
    for predicted in (100.0 * MIB, 500.0 * MIB, 5000.0 * MIB):
        said = informed.prior_peak(predicted, 0.0, usable_bytes=8000.0 * MIB)
        assert said.share == pytest.approx(alone.real(predicted) / (8000 * MIB), rel=0.01)


def test_the_larger_a_batch_the_more_its_error_is_that_of_the_ratio():
    host = calibrated(300.0 * MIB, [], ON_HOST)

    small, large = (host.prior_peak(tensors * MIB, 0.0, 1000.0 * MIB).together for tensors in (10.0, 1000.0))

    assert small[0] > large[0]
    assert small[1] < large[1] < ON_HOST.ratio_spread / ON_HOST.ratio
