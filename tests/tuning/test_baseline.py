"""Where the time of a probe goes, in a line."""

import msgspec

from autotune.tuning.baseline import describe_seconds
from tests.worlds import measured


def _took(seconds, starting):
    return msgspec.structs.replace(measured(32.0), elapsed_seconds=seconds, phase_seconds={"start": starting})


def test_a_long_probe_tells_where_its_time_goes():
    said = describe_seconds(_took(24.0, 0.4))

    assert said == "A probe takes 24 s here: 24 s of training with 2.0 s a step, and 0.4 s to start."


def test_a_short_probe_and_one_that_mostly_starts_tell_nothing():
    assert describe_seconds(_took(3.0, 0.4)) == ""
    assert describe_seconds(_took(12.0, 9.0)) == ""
