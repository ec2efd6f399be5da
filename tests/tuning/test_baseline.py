"""Where the time of a probe goes, in a line."""

import msgspec
import pytest

from autotune.core.results import Outcome
from autotune.errors import TargetError
from autotune.study.baseline_rate import why_doubtful
from autotune.testing import FakeLauncher
from autotune.tuning.baseline import describe_seconds, measure_baseline
from tests.answer.test_choice import _with_half_width
from tests.worlds import context, failed, measured, trial


def _took(seconds, starting):
    return msgspec.structs.replace(measured(32.0), elapsed_seconds=seconds, phase_seconds={"start": starting})


def test_a_long_probe_tells_where_its_time_goes():
    said = describe_seconds(_took(24.0, 0.4))

    assert said == "A probe takes 24 s here: 24 s of training with 2.00 s a step, and 0.4 s to start."


def test_short_steps_are_told_in_milliseconds():
    short = _took(24.0, 0.4)
    measurement = msgspec.structs.replace(short.measurement, step_seconds=(0.0123,) * 4)

    assert "with 12.3 ms a step" in describe_seconds(msgspec.structs.replace(short, measurement=measurement))


@pytest.mark.parametrize(("width", "told"), [(0.1, "10%"), (0.1003, "10.1%"), (0.1049, "10.5%"), (0.12, "12%")])
def test_a_width_beyond_the_tolerance_never_reads_like_it(width, told):
    assert why_doubtful(_with_half_width(trial(measured(5880.0)), width)) == f"5,880 samples/s ± {told}"


class Ending(FakeLauncher):
    """Its script ends well, before it was measured."""

    def run(self, request, folder):
        early = "train.py ended with exit status 0 after 9 optimizer steps, before it was measured."
        return failed(Outcome.USER_ERROR, early)


def test_a_search_of_what_ends_too_early_says_that_its_change_needs_a_new_study(tmp_path):
    with pytest.raises(TargetError, match=r"before it was measured\.\nA search of the changed .* needs --fresh"):
        measure_baseline(context(tmp_path, Ending()))


def test_a_short_probe_and_one_that_mostly_starts_tell_nothing():
    assert describe_seconds(_took(3.0, 0.4)) == ""
    assert describe_seconds(_took(12.0, 9.0)) == ""


@pytest.mark.parametrize(
    ("isolation", "why", "told"),
    [
        ("fresh", "the target sets X", "each is a fresh process, because the target sets X."),
        ("fork", "each imports the rest anew, for a thread", "each imports the rest anew, for a thread."),
    ],
)
def test_a_probe_that_mostly_starts_says_why_its_imports_are_not_shared(isolation, why, told):
    result = msgspec.structs.replace(_took(12.0, 9.0), isolation=isolation, isolation_reason=why)

    assert describe_seconds(result) == f"A probe takes 12 s here, 9.0 s of it to start: {told}"
