"""What micro-steps predict of accumulation is held against the full cycles of baseline and confirmation."""

import pytest
from msgspec.structs import replace

from autotune.answer.predicted_accumulation import accumulation_verified
from autotune.answer.recommend import StudyFacts, recommend
from autotune.core.codes import Code
from autotune.core.communication import Communication
from autotune.core.interference_readings import HostInterference
from autotune.core.isolated_timing import IsolatedTiming
from autotune.core.results import Trial
from autotune.study.summary import ConfigSummary
from tests.worlds import config, good, measured, study_request

PLAIN = config(64)
HALVES, QUARTERS = config(32, gradient_accumulation_steps=2), config(16, gradient_accumulation_steps=4)
PAIRS = Communication(without_seconds=(0.1,) * 3, with_seconds=(0.15,) * 3)
UPDATE = 0.05
AS_PREDICTED = 64 / (3 * 0.1 + 0.15 + UPDATE)  # samples/s of four micro-batches, of which the last exchanges: 128


def _summary(where, *rates, cycle=None, pairs=PAIRS, wait=0.0, slowed=()):
    """A configuration that was measured at these samples/s, with cycles of so many micro-batches; None: full ones.

    `slowed`: those of the rates that other work had slowed.
    """
    steps = where.gradient_accumulation_steps
    trials = []
    for number, rate in enumerate(rates):
        result = measured(rate, wait=wait)
        seconds = result.measurement.step_seconds[0]
        alone = IsolatedTiming(seconds=((1 - wait) * seconds,) * 3, samples=64) if wait else None
        changed = replace(
            result.measurement, accumulation_steps=steps, micro_batches_per_step=cycle or steps, communication=pairs,
            update_seconds=(UPDATE,) * 4, compute_only=alone,
            interference=HostInterference(run_queue_wait_share=0.5 * (rate in slowed), foreign_cores=1.0),
        )  # fmt: skip
        trials.append(
            Trial(number=number, purpose="confirm", config=where, result=replace(result, measurement=changed))
        )
    return ConfigSummary(config=where, trials=tuple(trials), verdicts=tuple(map(good, rates)))


def _told(winner, *others):
    return [*accumulation_verified(winner, (winner, *others), study_request())]


def test_full_cycles_that_take_what_micro_steps_predict_are_told_so():
    (found,) = _told(_summary(QUARTERS, 126.0, 126.0))

    assert found.code is Code.ACCUMULATION_PREDICTED
    assert found.text == (
        "accumulation over 4 micro-batches: computing predicted at 128 samples/s from micro-steps with and without an "
        "exchange, measured at 126 (1.6% less)"
    )


def test_a_prediction_that_all_rounds_contradict_is_called_wrong():
    (found,) = _told(_summary(QUARTERS, 100.0, 101.0, 100.0))

    assert found.code is Code.ACCUMULATION_MISPREDICTED
    assert "predicted at 128 samples/s, measured at 100 (22% less), so that rates" in found.text


@pytest.mark.parametrize("rates", [(100.0,), (123.0, 123.5, 123.0), (90.0, 128.0, 110.0)])
def test_one_probe_what_probes_differ_by_and_rounds_that_scatter_prove_nothing(rates):
    (found,) = _told(_summary(QUARTERS, *rates))

    assert found.code is Code.ACCUMULATION_PREDICTED


def test_the_wait_for_data_is_none_of_it():
    """Half of each step is a wait: the rate is half of what computing alone has."""
    (found,) = _told(_summary(QUARTERS, 64.0, 64.0, wait=0.5))

    assert found.numbers["measured"] == pytest.approx(AS_PREDICTED)


def test_probes_that_other_work_slowed_do_not_count():
    (found,) = _told(_summary(QUARTERS, 128.0, 60.0, 61.0, slowed=(60.0, 61.0)))

    assert found.numbers["measured"] == pytest.approx(AS_PREDICTED)
    assert _told(_summary(QUARTERS, 60.0, 61.0, slowed=(60.0, 61.0))) == []


def test_where_the_winner_does_not_accumulate_another_that_does_is_named():
    (found,) = _told(_summary(PLAIN, 250.0, 250.0), _summary(HALVES, 213.0, 213.0), _summary(QUARTERS, 128.0, 128.0))

    assert found.numbers["micro_batches"] == 2
    assert "accumulation over 2 micro-batches (32×2" in found.text


def test_without_an_exchange_without_accumulation_and_in_short_cycles_there_is_nothing_to_verify():
    assert _told(_summary(PLAIN, 200.0, 200.0)) == []
    assert _told(_summary(QUARTERS, 128.0, 128.0, pairs=None)) == []
    assert _told(_summary(QUARTERS, 128.0, cycle=2)) == []


def test_an_answer_says_it_among_its_reasons():
    facts = StudyFacts(study="studies/x", probes=9, seconds=12.34)
    answer = recommend([_summary(PLAIN, 100.0, 100.0), _summary(QUARTERS, 128.0, 128.0)], study_request(), facts)

    assert answer.params == QUARTERS.values
    assert Code.ACCUMULATION_PREDICTED in [one.code for one in answer.reasons]
