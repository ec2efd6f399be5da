"""What a loop over small operations costs, by the readings of watched steps."""

import pytest

from autotune.profile.measuring.line_times import LineTimes
from autotune.profile.measuring.operations import Operations
from autotune.profile.measuring.slow_lines import SlowLines
from autotune.profile.measuring.stopwatch import Stopwatch
from autotune.profile.measuring.user_lines import UserLine

LINE, STEPS, CALLS, OPERATION, PYTHON = UserLine("model.py", "Net.forward", 15), 10, 100, 5e-6, 4e-6
FORWARD, BACKWARD = CALLS * (OPERATION + PYTHON), 2e-3  # seconds of a step that is not watched
BACKWARD_SHARE = 0.75  # of the backward pass: the loop's, more or less than its share of the forward pass


@pytest.mark.parametrize("watching", [0.0, 1e-6, 9e-6], ids=["free", "cheap", "dear"])
def test_what_watching_added_to_a_loop_is_taken_off_again(watching):
    lines = LineTimes(Stopwatch("cpu"), ("forward",))
    operations = Operations(lines)
    called = operations.called[LINE, "linear", 0]
    called.count, called.seconds = CALLS * STEPS, CALLS * STEPS * OPERATION
    operations.inside["forward"] = called.seconds
    between = CALLS * STEPS * (PYTHON + watching)
    lines.parts["forward"].total = lines.parts["forward"].all[LINE] = between
    operations.backward.seconds.update({LINE: BACKWARD_SHARE, None: 1 - BACKWARD_SHARE})
    parts = {"forward": FORWARD, "backward": BACKWARD}

    (loop,) = SlowLines(operations, lines, STEPS, parts, "cpu", stretch=1.0).all()

    assert loop.kind == "loop"
    assert loop.seconds == pytest.approx(FORWARD + BACKWARD_SHARE * BACKWARD)
