"""The error about a baseline that does not learn: what its losses did, why probably, and what to do."""

import pytest
from msgspec.structs import replace

from autotune.core.results import Outcome
from autotune.study.unstable_baseline import ends_search, why_unstable
from tests.worlds import failed, measured, study_request, trial

ASKED = study_request()


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (measured(losses=(None,) * 4), "4 of 4 losses are not finite, the first in step 1. No parameter had changed"),
        (measured(losses=(2.0, None, None, None)), "the first in step 2. It began well, so the learning rate"),
        (measured(losses=(2.0, None, 1.8, 1.7)), "1 of 4 losses are not finite, the first in step 2. The last loss is"),
        (measured(losses=(1.0,) * 3 + (9e9,) * 4), "the loss grew from 1 to 9e+09 in 7 steps. That is normal for some"),
        (measured(skipped=9), "the gradient scaler skipped 9 of 4 steps after calibration. float16 probably overflows"),
        (failed(Outcome.UNSTABLE, "the scaler skipped 11 steps"), "the scaler skipped 11 steps. float16 probably"),
    ],
)
def test_the_cause_follows_from_where_the_losses_broke(result, words):
    probe = trial(result, 0, "baseline")

    assert ends_search(probe, ASKED)
    assert words in why_unstable([probe], ASKED)


def test_a_loss_that_grows_is_no_proof_that_the_baseline_does_not_learn():
    """GRPO: the loss begins near 0 and is all KL term later, while the reward rises."""
    grown = measured(losses=(8e-6,) * 3 + (0.05,) * 4)
    probes = [trial(grown, number, "baseline") for number in (0, 1)]

    told = why_unstable(probes, ASKED)

    assert told.startswith("The losses of the baseline grow: in probe 0, the loss grew from 8e-06 to 0.05 in 7 steps")
    assert "does not learn" not in told
    assert told.index("--stability off --fresh") < told.index("lower the learning rate")


def test_a_loss_that_grows_and_then_breaks_is_one():
    losses = ((1.0,) * 3 + (9e9,) * 4, (1.0, 9e9, None, None))
    probes = [trial(measured(losses=one), number, "baseline") for number, one in enumerate(losses)]

    assert why_unstable(probes, ASKED).startswith("The baseline does not learn: in probe 0, the loss grew")


def test_the_repeat_in_another_process_is_named():
    first, second = (trial(measured(losses=(2.0, *[None] * count)), n, "baseline") for n, count in enumerate((3, 5)))

    told = why_unstable([first, second], ASKED)

    assert "in probe 0, 3 of 4 losses are not finite, the first in step 2; probe 1 repeated it: 5 of 6" in told
    assert "assumed" not in told and "assumed" in why_unstable([first], replace(ASKED, baseline_assumed=True))


def test_other_probes_do_not_end_a_search():
    assert not ends_search(trial(measured(losses=(None,) * 4), 3, "search"), ASKED)
    assert not ends_search(trial(measured(), 0, "baseline"), ASKED)
