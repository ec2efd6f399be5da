"""What a loop over small operations costs, by the readings of watched steps."""

import pytest

from autotune.profile.measuring.batched import Alone
from autotune.profile.measuring.line_times import LineTimes
from autotune.profile.measuring.operations import Called, Operations
from autotune.profile.measuring.slow_lines import WATCHING_SECONDS, SlowLines
from autotune.profile.measuring.stopwatch import Stopwatch
from autotune.profile.measuring.user_lines import UserLine

LINE, STEPS, CALLS, OPERATION, PYTHON = UserLine("model.py", "Net.forward", 15), 10, 100, 5e-6, 4e-6
FORWARD, BACKWARD = CALLS * (OPERATION + PYTHON), 2e-3  # seconds of a step that is not watched
LEFT = 0.25  # of the operations of a loop, as one operation
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


class Known:
    """An operation whose time alone is known."""

    def alone(self, calls):
        return Alone(OPERATION, LEFT)


def cost(called, between=0.0, stretch=1.0, part="forward", seconds=FORWARD, gradients=0.0):
    """The slow lines where LINE calls an operation in a part of a step, by what was seen in all steps."""
    lines = LineTimes(Stopwatch("cpu"), (part,))
    operations = Operations(lines, stretch)
    operations.called[LINE, "linear", 0] = called
    for _ in range(STEPS):
        operations.step()
    operations.between_steps.update({LINE} if part == "other" else ())
    operations.inside[part] = called.seconds
    operations.backward.seconds[LINE] = gradients
    lines.parts[part].total = lines.parts[part].all[LINE] = lines.parts[part].busy[LINE] = between
    parts = {"forward": 0.0, "backward": 0.0, part: seconds}
    return SlowLines(operations, lines, STEPS, parts, "cpu", stretch=stretch).all()


@pytest.mark.parametrize(("gradients", "share"), [(0.0, 1.0), (1.0, 1 - LEFT)], ids=["for a log", "of the loss"])
def test_operations_that_watching_makes_longer_count_as_long_as_they_take_alone(gradients, share):
    many = CALLS * STEPS

    called = Called(
        count=many, seconds=many * 3 * OPERATION, sample=Known(), alike=many, alike_seconds=many * 3 * OPERATION
    )
    (loop,) = cost(called, gradients=gradients)

    assert loop.seconds == pytest.approx(CALLS * OPERATION * share)


def test_a_call_that_works_on_more_counts_for_more():
    many, small = CALLS * STEPS, CALLS * STEPS // 2
    seconds = many * 2 * OPERATION + (many - small) * 20 * OPERATION  # half of the calls take 20 times more

    (loop,) = cost(
        Called(
            count=many,
            seconds=many * OPERATION + seconds,
            sample=Known(),
            alike=small,
            alike_seconds=small * 3 * OPERATION,
        ),
        seconds=1.0,
    )

    assert loop.seconds == pytest.approx(CALLS * OPERATION * 11)


def test_the_loop_costs_no_more_than_the_part_it_is_in():
    many = CALLS * STEPS

    (loop,) = cost(Called(count=many, seconds=many * OPERATION), between=many * 1e-3, part="other", seconds=1e-3)

    assert loop.kind == "loop"
    assert loop.seconds == 1e-3


def test_between_steps_that_held_an_evaluation_there_is_no_loop():
    many, lines = CALLS * STEPS, LineTimes(Stopwatch("cpu"), ("forward",))
    operations = Operations(lines)
    operations.called[LINE, "linear", 0] = Called(count=many, seconds=many * OPERATION)
    operations.between_steps.add(LINE)

    assert SlowLines(operations, lines, STEPS, {"forward": 1.0, "backward": 1.0}, "cpu", stretch=1.0).all() == []


def test_what_watching_adds_is_no_code_of_the_users_also_where_others_make_it_longer():
    (python,) = cost(Called(count=3 * STEPS), between=3 * STEPS * WATCHING_SECONDS, stretch=3.0)

    assert python.kind == "python"
    assert python.seconds == pytest.approx(0.0, abs=1e-9)
