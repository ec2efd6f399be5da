"""The measuring window, driven by steps made by hand and a clock that is set by hand."""

import pytest
import torch

from autotune.probe import window as windows
from autotune.probe.window import UnstableTraining, Window
from autotune.records import ProbeBudget
from autotune.targets.base import Command, Step

BUDGET = ProbeBudget(min_warmup_steps=3, min_warmup_seconds=0.0, min_steps=8, min_seconds=0.75, max_seconds=4.0)


class Time:
    """Stands for `time.perf_counter` and for the device's clock."""

    def __init__(self):
        self.now = 0.0
        self.marks = []

    def perf_counter(self):
        return self.now

    def mark(self):
        self.marks.append(self.now)

    def intervals(self):
        return [b - a for a, b in zip(self.marks, self.marks[1:], strict=False)]


@pytest.fixture
def clock(monkeypatch):
    hand = Time()
    monkeypatch.setattr(windows, "time", hand)
    return hand


def _step(skipped=False, micro_batches=1, loss=1.0):
    return Step(
        loss=torch.tensor(loss), samples=8, tokens=None, micro_batches=micro_batches, loader_wait_seconds=0.0,
        skipped=skipped,
    )  # fmt: skip


def _drive(window, clock, seconds, most=10_000, **step):
    """Steps of `seconds(number)` until the window stops; the commands it gave."""
    commands = []
    for number in range(most):
        clock.now += seconds(number)
        commands.append(window.step(_step(**step)))
        if commands[-1] is Command.STOP:
            return commands
    raise AssertionError("the window never stopped")


def _window(clock, workers=0, budget=BUDGET, phases=None):
    return Window(clock, budget, workers, beat=lambda: None, phase=(phases if phases is not None else []).append)


def test_the_queue_is_drained_once_after_the_warm_up(clock):
    phases = []

    commands = _drive(_window(clock, workers=2, phases=phases), clock, lambda n: 0.1)

    assert commands.count(Command.DRAIN) == 1
    assert commands.index(Command.DRAIN) == 2
    assert phases == ["measure"]


def test_slow_first_steps_are_not_in_the_window(clock):
    window = _window(clock)

    _drive(window, clock, lambda n: 1.0 if n < 3 else 0.1)

    assert max(clock.intervals()) == pytest.approx(0.1)
    assert window.warmup_seconds == pytest.approx([1.0] * 3)


def test_the_window_is_a_whole_multiple_of_the_workers(clock):
    window = _window(clock, workers=3)

    _drive(window, clock, lambda n: 0.11)

    assert len(window.steps) % 3 == 0
    assert len(clock.intervals()) == len(window.steps)


def test_a_steady_run_ends_as_soon_as_it_may(clock):
    window = _window(clock)

    _drive(window, clock, lambda n: 0.1)

    assert len(window.steps) == 8
    assert not window.noisy


def test_an_unsteady_run_goes_on_to_the_cap_and_is_called_noisy(clock):
    window = _window(clock)

    _drive(window, clock, lambda n: 0.3 if n % 7 == 0 else 0.05)

    assert sum(clock.intervals()) >= BUDGET.max_seconds
    assert window.noisy


def test_the_spread_is_looked_at_rarely_because_the_next_step_pays_for_it(clock, monkeypatch):
    window = _window(clock)
    looks = []
    measure = window.half_width
    monkeypatch.setattr(window, "half_width", lambda: looks.append(len(window.steps)) or measure())

    _drive(window, clock, lambda n: 0.005 if n // 200 % 2 else 0.001)  # never precise enough

    assert len(window.steps) > 1000
    assert len(looks) < 20


def test_very_slow_steps_end_at_two(clock):
    window = _window(clock)

    _drive(window, clock, lambda n: 30.0)

    assert len(window.steps) == 2
    assert len(window.warmup_seconds) == 2


def test_the_warm_up_lasts_until_two_steps_succeeded(clock):
    window = _window(clock)
    for _ in range(6):
        clock.now += 0.1
        assert window.step(_step(skipped=True)) is Command.CONTINUE

    _drive(window, clock, lambda n: 0.1)

    assert window.calibration_skips == 6
    assert window.skipped_steps == 0
    assert window.successes >= 2


def test_a_scaler_that_never_lets_a_step_through_is_instability(clock):
    window = _window(clock)

    with pytest.raises(UnstableTraining, match="11 optimizer steps"):
        _drive(window, clock, lambda n: 0.1, skipped=True)


def test_skips_after_the_first_success_are_counted_apart(clock):
    window = _window(clock)
    for skipped in (True, False, True):
        clock.now += 0.1
        window.step(_step(skipped=skipped))

    assert (window.calibration_skips, window.skipped_steps) == (1, 1)


def test_restarts_of_the_loader_count_only_inside_the_window(clock):
    window = _window(clock)
    window.epoch()
    _drive(window, clock, lambda n: 0.1)
    window.epoch()

    assert window.restarts == 1


def test_losses_that_are_not_finite_become_none(clock):
    window = _window(clock)
    for loss in (1.0, float("nan"), float("inf")):
        window.step(_step(loss=loss))

    assert window.losses() == (1.0, None, None)
