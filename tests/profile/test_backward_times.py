"""The time of a backward pass belongs to the line whose gradients it computed; the clock is that of the graph."""

from collections import Counter

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from autotune.profile.measuring.backward_times import BackwardTimes
from autotune.profile.measuring.stopwatch import Stopwatch
from autotune.profile.measuring.user_lines import UserLine

FIRST, SECOND = (UserLine("model.py", "forward", number) for number in (7, 8))


class Clock:
    """Goes on where gradients are computed, and where an operation is computed again."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def slow(self, tensor, seconds):
        clock = self

        class Slow(torch.autograd.Function):
            @staticmethod
            def forward(context, x):
                return x * 1

            @staticmethod
            def backward(context, gradient):
                clock.now += seconds
                return gradient

        return Slow.apply(tensor)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stopwatch():
    return Stopwatch("cpu")


@pytest.fixture
def times(clock, stopwatch):
    made = BackwardTimes(stopwatch, clock)
    with made.watched():
        yield made


@pytest.fixture
def back(stopwatch):
    return stopwatch.during("backward", torch.autograd.backward)


@pytest.fixture
def weight():
    return torch.ones(4, requires_grad=True)


def test_each_line_has_the_time_of_its_gradients(clock, times, weight, back):
    for seconds, line in ((1.0, FIRST), (2.0, SECOND), (4.0, FIRST)):
        weight = clock.slow(weight, seconds) * 2
        times.follow([weight], line)

    back(weight.sum())

    assert +times.seconds == Counter({FIRST: 5.0, SECOND: 2.0})


def test_what_no_operation_made_and_what_torch_does_outside_of_backward_is_nobodys(clock, times, weight, back):
    times.follow([made := weight * 2], FIRST)
    times.follow([unseen := clock.slow(made, 1.0)], None)
    times.follow([made := unseen * 2], SECOND)

    torch.autograd.backward(made.sum(), retain_graph=True)
    assert not +times.seconds

    back(made.sum())
    assert +times.seconds == Counter({None: 1.0})


def test_a_result_that_is_handed_on_stays_that_of_the_line_that_made_it(clock, times, weight, back):
    made = clock.slow(weight, 1.0)
    times.follow([made], FIRST)
    times.follow([made.to(torch.float32), weight], SECOND)

    back(made.sum())

    assert +times.seconds == Counter({FIRST: 1.0})


def test_a_tensor_that_was_changed_in_place_is_that_of_the_line_that_did(clock, times, weight, back):
    made = weight * 2
    times.follow([made], FIRST)
    made[0] = clock.slow(weight[1], 1.0)
    times.follow([made], SECOND)

    back(made.sum())

    assert +times.seconds == Counter({SECOND: 1.0})


def test_frozen_and_detached_tensors_have_no_gradients_to_time(times, weight, back):
    times.follow([torch.ones(4) * 2, (weight * 2).detach(), weight], FIRST)

    back((weight * 2).sum())

    assert not +times.seconds


def test_a_view_that_torch_gives_no_gradients_is_passed_over(times, weight):
    base = weight * 2
    with torch.no_grad():
        view = base[:2]
    base.mul_(2)
    with pytest.raises(RuntimeError, match="no_grad"):
        _ = view.grad_fn

    times.follow([view], FIRST)


@pytest.mark.parametrize("reentrant", [False, True], ids=["saved", "reentrant"])
def test_gradients_through_a_checkpoint_are_the_same_and_are_timed(clock, times, weight, back, reentrant):
    def block(x):
        times.follow([x := clock.slow(x * x, 1.0)], FIRST)
        return x

    times.follow([made := checkpoint(block, weight, use_reentrant=reentrant)], None)
    times.follow([made := made * 2], SECOND)

    back(made.sum())

    assert weight.grad.tolist() == [4.0] * 4
    assert times.seconds[SECOND] == 0.0
    assert times.seconds.total() == 1.0


def test_after_watching_a_graph_that_is_kept_is_timed_no_more(clock, stopwatch, weight, back):
    times = BackwardTimes(stopwatch, clock)
    with times.watched():
        times.follow([made := clock.slow(weight, 1.0)], FIRST)
        back(made.sum(), retain_graph=True)
    before = Counter(times.seconds)

    back(made.sum())

    assert times.seconds == before
