"""A precision that its losses exclude is named in the answer, with what they did and a way out."""

import dataclasses

from msgspec.structs import replace

from autotune.answer.refused_precision import with_refused_precisions
from autotune.core.codes import Code
from autotune.core.results import Outcome
from autotune.precision.records import LossRun, PrecisionCheckRequest, PrecisionCheckResult
from autotune.report.answer import LONGEST_TEXT
from autotune.study.history import History
from autotune.study.summary import ConfigSummary
from tests.reporting import recommendation
from tests.worlds import config, earlier, good, measured, study_request, trial

FINE = trial(measured(losses=(2.0, 1.9, 1.8, 1.7)))
BROKEN = trial(measured(losses=(2.0, 1.9, None, None)), number=1, amp_dtype="bfloat16")
FALLING = tuple(2.0 - 0.02 * step for step in range(50))


def _told(*trials, checks=(), candidates=(), answer=None, request=None):
    history = History(request or study_request(), trials, checks)
    return with_refused_precisions(
        answer or recommendation(params=config().values, warnings=()), history, candidates
    ).warnings


def _check(losses, amp="bfloat16", **values):
    request = PrecisionCheckRequest(
        target="model.py", reference=config(), candidate=config(amp_dtype=amp, **values), device="cpu"
    )
    runs = [LossRun(role=role, seed=0, losses=FALLING) for role in ("reference", "perturbed")]
    runs.append(LossRun(role="candidate", seed=0, losses=losses))
    return request, PrecisionCheckResult(outcome=Outcome.OK, runs=tuple(runs))


def test_losses_that_break_in_probes_of_bfloat16_alone_are_told_with_the_step_and_a_way_out():
    (warning,) = _told(FINE, BROKEN)

    assert warning.code is Code.PRECISION_REFUSED
    assert warning.meaning == (
        "bf16 is unstable here: 2 of 4 losses are not finite, the first in step 3 (fp32: all are finite), so it is not "
        "recommended."
    )
    assert "Compute in float32 what its rounding spoils" in warning.next_step
    assert len(warning.text) <= LONGEST_TEXT  # of a longer one the answer leaves out what to do


def test_losses_that_break_in_the_paired_runs_are_told_too_and_once():
    check = _check((*FALLING[:11], *(None,) * 39))
    (warning,) = _told(FINE, BROKEN, checks=[check])

    assert "bf16 is unstable here: 39 of 50 losses are not finite, the first in step 12" in warning.text
    assert [one.text for one in _told(FINE, checks=[check])] == [warning.text]


def test_a_precision_that_learns_less_is_told():
    (warning,) = _told(FINE, checks=[_check((*FALLING[:40], *(one + 0.2 for one in FALLING[40:])))])

    assert warning.text.startswith("bf16 learns less than fp32: ")


def test_the_same_with_more_changes_is_not_told_again():
    both = _check((None,) * 50, tf32=True)

    assert len(_told(FINE, checks=[both, _check((None,) * 50)])) == 1
    assert len(_told(FINE, BROKEN, checks=[both])) == 1


def test_nobody_is_blamed_where_full_precision_breaks_too_or_did_not_run():
    assert _told(BROKEN) == ()
    assert _told(trial(measured(losses=(2.0, None, None, None))), BROKEN) == ()


def test_one_probe_does_not_speak_against_a_precision_that_others_confirmed():
    where = config(batch_size=64, amp_dtype="bfloat16")
    ran = ConfigSummary(config=where, trials=(trial(measured(), number=2, **where.values),), verdicts=(good(100.0),))

    assert _told(FINE, BROKEN, candidates=[ran]) == ()
    assert _told(FINE, BROKEN, candidates=[dataclasses.replace(ran, refused=earlier("unstable"))]) != ()
    assert _told(FINE, BROKEN, answer=recommendation(params=where.values, warnings=())) == ()


def test_a_single_batch_whose_losses_break_is_not_blamed_on_the_precision():
    fine = trial(measured(), number=2, batch_size=128, amp_dtype="bfloat16")

    assert _told(FINE, BROKEN, fine) == ()


def test_of_a_block_of_steps_no_step_is_named():
    broken = measured(losses=(2.0, 1.9, None, None))
    blocks = replace(broken, measurement=replace(broken.measurement, steps_per_block=10))
    (warning,) = _told(FINE, trial(blocks, number=1, amp_dtype="bfloat16"))

    assert "losses are not finite (fp32: all are finite)" in warning.text
