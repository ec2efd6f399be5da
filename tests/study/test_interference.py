"""Which probes interference spoiled, which of two counts, and when repeating is given up."""

import msgspec
import pytest

from autotune.core.interference_readings import GpuUse, HostInterference
from autotune.core.results import Outcome
from autotune.study.history import History
from autotune.study.valid_probes import (
    MOST_VAIN_REPEATS,
    Judged,
    interference_causes,
    is_spoiled,
    severity,
    valid_trials,
)
from autotune.testing import FakeLauncher
from autotune.tuning.probing import probe_with_repeat
from tests.worlds import Listener, bad, config, context, failed, good, measured, study_request, trial

CALM = HostInterference(run_queue_wait_share=0.01, foreign_cores=0.5)


def _busy(share=0.2):
    return HostInterference(run_queue_wait_share=share, foreign_cores=1.0)


def _probe(interference=None, gpu=None):
    result = measured()
    window = msgspec.structs.replace(result.measurement, interference=interference)
    return msgspec.structs.replace(result, measurement=window, gpu=gpu)


class Busy(FakeLauncher):
    """A machine that other work always slows."""

    def run(self, request, folder):
        return _probe(_busy())


def _gpu(**changes):
    return GpuUse(readings=5, **changes)


@pytest.mark.parametrize(
    ("interference", "gpu", "words"),
    [
        (_busy(), None, "1.0 cores busy, and the probe waited 20%"),
        (None, _gpu(foreign_processes=(7, 8), foreign_share=0.3), "other processes took 30% of its GPU's time"),
        (None, _gpu(throttle_reasons=("hardware thermal slowdown",)), "hardware thermal slowdown"),
        (None, _gpu(throttle_reasons=("power cap", "power brake")), "power brake"),
        (None, _gpu(utilization=0.99, sm_clock_mhz=(1400, 1500)), "between 1400 and 1500 MHz"),
    ],
)
def test_what_disturbed_a_probe_is_told(interference, gpu, words):
    (told,) = interference_causes(_probe(interference, gpu))

    assert words in told.text


@pytest.mark.parametrize(
    ("interference", "gpu"),
    [
        (None, None),
        (CALM, _gpu(utilization=0.99, sm_clock_mhz=(1470, 1500))),
        (CALM, _gpu(utilization=0.99, throttle_reasons=("power cap",), sm_clock_mhz=(1200, 1500))),  # as large GPUs do
        (CALM, _gpu(utilization=0.4, sm_clock_mhz=(345, 1980))),  # a GPU that rests between steps lowers its clock
        (CALM, _gpu(sm_clock_mhz=(345, 1980))),
        (CALM, _gpu(foreign_processes=(4242,), foreign_share=0.0)),  # an idle notebook holds its context
        (CALM, _gpu(foreign_processes=(4242,))),  # a GPU that does not tell who computes
        (HostInterference(), _gpu()),
    ],
)
def test_what_is_normal_or_unknown_is_no_disturbance(interference, gpu):
    assert interference_causes(_probe(interference, gpu)) == ()


def test_a_probe_without_a_window_can_have_been_disturbed_on_its_card():
    result = msgspec.structs.replace(failed(), gpu=_gpu(foreign_processes=(7,), foreign_share=0.5))

    assert len(interference_causes(result)) == 1


def test_the_longer_wait_is_the_worse_disturbance_and_a_foreign_process_worse_than_any():
    waited = [_probe(_busy(share)) for share in (0.05, 0.5)]
    shared = _probe(_busy(0.05), _gpu(foreign_processes=(7,), foreign_share=0.5))

    assert severity(_probe()) < severity(waited[0]) < severity(waited[1]) < severity(shared)


def _standing(*results, purpose="search"):
    judged = [Judged(trial(result, number, purpose), good(100.0)) for number, result in enumerate(results)]
    return [probe.number for probe, _ in valid_trials(judged)]


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

    assert [probe.number for probe, _ in valid_trials([Judged(one, good(1.0)) for one in probes])] == [0, 2, 3]


@pytest.mark.parametrize(("share", "is_so"), [(0.0, False), (0.05, False), (0.2, True)])
def test_a_probe_is_spoiled_where_others_cost_it_more_than_a_tenth(share, is_so):
    assert is_spoiled(_probe(_busy(share))) is is_so
    assert is_spoiled(_probe(_busy(share), _gpu(foreign_processes=(7,), foreign_share=0.5)))


def test_a_probe_of_another_configuration_is_no_repeat():
    judged = [
        Judged(trial(_probe(_busy()), 0, batch_size=8), good(1.0)),
        Judged(trial(_probe(), 1, batch_size=16), bad()),
    ]

    assert len(valid_trials(judged)) == 2


def _history(*results, purpose="search"):
    """A history with a run that repeated one probe after another, with these results."""
    repeats = [
        msgspec.structs.replace(trial(result, number, purpose), repeats=number - 100)
        for number, result in enumerate(results, 100)
    ]
    history = History(study_request())
    for one in repeats:
        history.add(one)
    return history


def test_after_vain_repeats_in_a_row_the_machine_is_busy():
    busy = [_probe(_busy())] * MOST_VAIN_REPEATS

    assert not _history(*busy[1:]).is_busy
    assert _history(*busy).is_busy


def test_one_repeat_in_peace_gives_the_machine_its_credit_back():
    results = [_probe(one) for one in (_busy(), _busy(), CALM, _busy(), _busy())]

    assert not _history(*results).is_busy


def test_a_repeat_that_crashed_and_was_tried_again_counts_once():
    first = trial(_probe(_busy()), 100)
    repeats = [(failed(Outcome.CRASHED), 7), (_probe(_busy()), 7), (_probe(_busy()), 8), (_probe(_busy()), 9)]
    history = History(study_request(), [first])
    for number, (result, of) in enumerate(repeats, 101):
        history.add(msgspec.structs.replace(trial(result, number), repeats=of))

    assert history.is_busy


def test_repeats_of_an_earlier_run_do_not_count():
    earlier = [msgspec.structs.replace(trial(_probe(_busy()), number), repeats=number - 10) for number in range(10, 14)]

    assert not History(study_request(), earlier).is_busy


@pytest.mark.parametrize(
    ("purpose", "wanted"), [("baseline", True), ("search", True), ("confirm", True), ("reference", False)]
)
def test_all_but_a_reference_is_repeated(tmp_path, purpose, wanted):
    search = context(tmp_path, Busy())

    probe_with_repeat(search, config(batch_size=64), purpose)

    assert len(search.history.judged) == (2 if wanted else 1)


def test_what_nobody_disturbed_is_not_repeated(tmp_path):
    search = context(tmp_path)

    probe_with_repeat(search, config(batch_size=64), "search")

    assert len(search.history.judged) == 1


def test_without_time_nothing_is_repeated_and_that_is_said(tmp_path):
    listener = Listener()
    search = context(tmp_path, Busy(), listener, left=1.0)

    probe_with_repeat(search, config(batch_size=64), "search")

    assert len(search.history.judged) == 1
    assert listener.notes[-1].endswith("There is no time for another try.")
