"""Whether another update of the optimizer is worth a change: by the updates that probes timed, not by their rates."""

import pytest
from msgspec.structs import replace

from autotune.core.interference_readings import HostInterference
from autotune.tuning.confirmation import confirm
from autotune.tuning.idle_update import idle_updates
from autotune.tuning.simplification import scores_without_idle_changes
from tests.worlds import config, context, measured, trial

BASE = config(batch_size=64)
BF16 = config(batch_size=64, amp_dtype="bfloat16")
FUSED = config(batch_size=64, amp_dtype="bfloat16", fused_optimizer="fused")


def _timed(number, where, rate, *updates, purpose="search", waited=0.0):
    """A probe with that rate, and with these seconds of updates, as shares of the baseline's step."""
    ran = measured(rate)
    seconds = tuple(share * 64 / 100 for share in updates)
    shared = HostInterference(run_queue_wait_share=waited, foreign_cores=1.0)
    kept = replace(ran.measurement, update_seconds=seconds, interference=shared)
    return trial(replace(ran, measurement=kept), number, purpose, **where.values)


def _history(tmp_path, *trials):
    return context(tmp_path, trials=trials).history


@pytest.mark.parametrize(
    ("before", "own", "idle"),
    [
        (0.05, 0.045, ["fused_optimizer"]),  # it saves 1 % of a step of half the length
        (0.05, 0.06, ["fused_optimizer"]),
        (0.05, 0.02, []),  # 6 %
    ],
)
def test_an_update_is_idle_if_it_saves_no_more_than_2_percent_of_a_step_however_fast_its_probe_was(
    tmp_path, before, own, idle
):
    history = _history(
        tmp_path, _timed(0, BASE, 100, before, 2 * before, before, purpose="baseline"),
        _timed(1, FUSED, 200, own, own, 3 * own), _timed(2, BF16, 120, before),
    )  # fmt: skip

    assert idle_updates(history, FUSED, BASE) == idle
    assert idle_updates(history, BF16, BASE) == []


def test_the_least_of_the_probes_counts_for_others_only_add_to_it(tmp_path):
    slowed = _timed(2, FUSED, 40, 0.4, 0.5, waited=0.5)
    history = _history(tmp_path, _timed(0, BASE, 100, 0.05, purpose="baseline"), _timed(1, FUSED, 200, 0.02), slowed)

    assert idle_updates(history, FUSED, BASE) == []


def test_what_was_not_timed_or_only_by_another_number_of_threads_is_not_known(tmp_path):
    base, threads = _timed(0, BASE, 100, 0.05, purpose="baseline"), config(**{**FUSED.values, "num_threads": 1})
    untimed = _history(tmp_path / "untimed", base, _timed(1, FUSED, 200))
    alone = _history(tmp_path / "threads", base, _timed(1, threads, 200, 0.05))

    assert idle_updates(untimed, FUSED, BASE) == idle_updates(alone, threads, BASE) == []


@pytest.mark.parametrize(
    ("own", "believed"), [(0.05, {BASE: 100, BF16: 122}), (0.01, {BASE: 100, BF16: 120, FUSED: 124})]
)
def test_probes_that_differ_in_an_idle_update_alone_measured_one_configuration(tmp_path, own, believed):
    """As seen: of three probes with nhwc one was lucky, and that with an update that saved nothing."""
    probes = (
        _timed(0, BASE, 100, 0.05, purpose="baseline"), _timed(1, FUSED, 124, own), _timed(2, BF16, 120, 0.05)
    )  # fmt: skip

    assert scores_without_idle_changes(context(tmp_path, trials=probes)) == pytest.approx(believed, rel=1e-3)


@pytest.mark.parametrize(("own", "confirmed"), [(0.05, {BASE, BF16}), (0.01, {BASE, FUSED})])
def test_no_finalist_has_an_idle_update(tmp_path, own, confirmed):
    trials = (_timed(0, BASE, 100, 0.05, purpose="baseline"), _timed(1, FUSED, 200, own))

    found = confirm(context(tmp_path, trials=trials))

    assert {one.config for one in found} == confirmed
