"""Which probes others spoiled, and which of two spoiled ones counts."""

import msgspec
import pytest

from autotune.interference import Contamination, GpuUse
from autotune.results import Outcome
from autotune.tuning.disturbance import MOST_VAIN_REPEATS, Repeats, disturbances, is_spoiled, severity, standing
from tests.worlds import bad, failed, good, measured, trial

CALM = Contamination(run_queue_wait_share=0.01, foreign_cores=0.5)


def _busy(share=0.2):
    return Contamination(run_queue_wait_share=share, foreign_cores=1.0)


def _probe(contamination=None, gpu=None):
    result = measured()
    window = msgspec.structs.replace(result.measurement, contamination=contamination)
    return msgspec.structs.replace(result, measurement=window, gpu=gpu)


def _gpu(**changes):
    return GpuUse(readings=5, **changes)


@pytest.mark.parametrize(
    ("contamination", "gpu", "words"),
    [
        (_busy(), None, "1.0 cores busy and it waited 20%"),
        (None, _gpu(foreign_processes=(7, 8), foreign_share=0.3), "other processes took 30% of its GPU's time"),
        (None, _gpu(throttle_reasons=("hardware thermal slowdown",)), "hardware thermal slowdown"),
        (None, _gpu(throttle_reasons=("power cap", "power brake")), "power brake"),
        (None, _gpu(utilization=0.99, sm_clock_mhz=(1400, 1500)), "between 1400 and 1500 MHz"),
    ],
)
def test_what_disturbed_a_probe_is_told(contamination, gpu, words):
    (told,) = disturbances(_probe(contamination, gpu))

    assert words in told


@pytest.mark.parametrize(
    ("contamination", "gpu"),
    [
        (None, None),
        (CALM, _gpu(utilization=0.99, sm_clock_mhz=(1470, 1500))),
        (CALM, _gpu(utilization=0.99, throttle_reasons=("power cap",), sm_clock_mhz=(1200, 1500))),  # as large cards do
        (CALM, _gpu(utilization=0.4, sm_clock_mhz=(345, 1980))),  # a card that rests between steps lowers its clock
        (CALM, _gpu(sm_clock_mhz=(345, 1980))),
        (CALM, _gpu(foreign_processes=(4242,), foreign_share=0.0)),  # an idle notebook holds its context
        (CALM, _gpu(foreign_processes=(4242,))),  # a card that does not tell who computes
        (Contamination(), _gpu()),
    ],
)
def test_what_is_normal_or_unknown_is_no_disturbance(contamination, gpu):
    assert disturbances(_probe(contamination, gpu)) == ()


def test_a_probe_without_a_window_can_have_been_disturbed_on_its_card():
    result = msgspec.structs.replace(failed(), gpu=_gpu(foreign_processes=(7,), foreign_share=0.5))

    assert len(disturbances(result)) == 1


def test_the_longer_wait_is_the_worse_disturbance_and_a_foreign_process_worse_than_any():
    waited = [_probe(_busy(share)) for share in (0.05, 0.5)]
    shared = _probe(_busy(0.05), _gpu(foreign_processes=(7,), foreign_share=0.5))

    assert severity(_probe()) < severity(waited[0]) < severity(waited[1]) < severity(shared)


def _standing(*results, purpose="search"):
    judged = [(trial(result, number, purpose), good(100.0)) for number, result in enumerate(results)]
    return [probe.number for probe, _ in standing(judged)]


def test_the_repeat_counts_and_the_disturbed_probe_does_not():
    assert _standing(_probe(_busy()), _probe(CALM)) == [1]


@pytest.mark.parametrize(("shares", "counts"), [((0.2, 0.4), 0), ((0.4, 0.2), 1), ((0.2, 0.2), 0)])
def test_of_two_disturbed_probes_the_less_disturbed_counts(shares, counts):
    assert _standing(*(_probe(_busy(share)) for share in shares)) == [counts]


def test_a_repeat_that_failed_counts():
    assert _standing(_probe(_busy()), failed(Outcome.OOM_DEVICE)) == [1]


def test_what_nobody_disturbed_counts_however_often_it_was_probed():
    assert _standing(_probe(CALM), _probe(CALM)) == [0, 1]


@pytest.mark.parametrize("purpose", ["confirm", "reference"])
def test_rounds_and_references_are_not_repeats(purpose):
    assert _standing(_probe(_busy()), _probe(_busy()), purpose=purpose) == [0, 1]


def test_of_a_round_only_what_says_so_is_a_repeat():
    probes = [trial(_probe(_busy(share)), number, "confirm") for number, share in enumerate((0.1, 0.4, 0.2, 0.3))]
    probes[2] = msgspec.structs.replace(probes[2], repeats=1)

    assert [probe.number for probe, _ in standing([(one, good(1.0)) for one in probes])] == [0, 2, 3]


@pytest.mark.parametrize(("share", "is_so"), [(0.0, False), (0.05, False), (0.2, True)])
def test_a_probe_is_spoiled_where_others_cost_it_more_than_a_tenth(share, is_so):
    assert is_spoiled(_probe(_busy(share))) is is_so
    assert is_spoiled(_probe(_busy(share), _gpu(foreign_processes=(7,), foreign_share=0.5)))


def test_a_probe_of_another_configuration_is_no_repeat():
    judged = [(trial(_probe(_busy()), 0, batch_size=8), good(1.0)), (trial(_probe(), 1, batch_size=16), bad())]

    assert len(standing(judged)) == 2


@pytest.mark.parametrize(
    ("purpose", "wanted"), [("baseline", True), ("search", True), ("confirm", True), ("reference", False)]
)
def test_all_but_a_reference_is_repeated(purpose, wanted):
    assert Repeats().wanted(trial(_probe(_busy()), 0, purpose)) is wanted


def test_what_nobody_disturbed_is_not_repeated():
    assert not Repeats().wanted(trial(_probe(CALM)))


def test_after_vain_repeats_in_a_row_there_are_no_more():
    repeats, disturbed = Repeats(), trial(_probe(_busy()))
    for _ in range(MOST_VAIN_REPEATS - 1):
        repeats.settle(disturbed, disturbed)
    assert repeats.wanted(disturbed)

    repeats.settle(disturbed, disturbed)

    assert repeats.given_up
    assert not repeats.wanted(disturbed)


def test_one_repeat_in_peace_gives_the_machine_its_credit_back():
    repeats, disturbed = Repeats(), trial(_probe(_busy()))
    for result in [_busy(), _busy(), CALM, _busy(), _busy()]:
        repeats.settle(disturbed, trial(_probe(result), 1))

    assert not repeats.given_up
