"""The clocks of a probe: the host's own, and that of events, on a made-up device that works while the host goes on."""

from __future__ import annotations

import pytest

from autotune.child import clock as clocks
from autotune.child import window as windows
from autotune.child.clock import EventClock, HostClock
from autotune.child.memory_trace import MemoryTrack
from autotune.child.warmup import WarmUp
from autotune.child.watched_loop import Callbacks, Instruments, LoopShape
from autotune.child.window import ProbeWatch
from autotune.core.requests import ProbeBudget
from autotune.targets.base import Order, Step

BUDGET = ProbeBudget(min_warmup_steps=3, min_warmup_seconds=0.0, min_steps=8, min_seconds=0.75, max_seconds=4.0)
ISSUED, COMPUTED = 0.01, 0.12  # seconds of one step, on the host and on the device
AHEAD = 2  # steps that fit into the queue of the device; for another one the host has to wait


class Device:
    """Stands for `torch.cuda`, and for the host's clock: both go on by what is issued and waited for."""

    def __init__(self) -> None:
        self.time = 0.0  # of the host
        self.ends: list[float] = [0.0]  # of all that was issued, on the device

    def perf_counter(self) -> float:
        return self.time

    def thread_time(self) -> float:
        return 0.0

    def issue(self, computed: float = COMPUTED) -> None:
        """One training step, or a part of it."""
        self.time = max(self.time + ISSUED, self.ends[-AHEAD] if len(self.ends) > AHEAD else 0.0)
        self.ends.append(max(self.time, self.ends[-1]) + computed)

    def synchronize(self, device: str) -> None:
        self.time = max(self.time, self.ends[-1])

    def Event(self, *, enable_timing: bool) -> Moment:  # noqa: N802 - torch's name
        return Moment(self)


class Moment:
    """Stands for `torch.cuda.Event`."""

    def __init__(self, device: Device) -> None:
        self._device, self.reached = device, 0.0

    def record(self) -> None:
        self.reached = max(self._device.time, self._device.ends[-1])

    def synchronize(self) -> None:
        self._device.time = max(self._device.time, self.reached)

    def elapsed_time(self, later: Moment) -> float:
        return 1e3 * (later.reached - self.reached)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    for module in (clocks, windows):
        monkeypatch.setattr(module, "time", made)
    return made


def _window(device: Device, incumbent: float | None = None) -> tuple[ProbeWatch, EventClock]:
    clock = EventClock("cuda:0", device)
    return ProbeWatch(BUDGET, _instruments(clock), LoopShape(), Callbacks(), incumbent), clock


def _instruments(clock: EventClock, updates: EventClock | None = None) -> Instruments:
    warm_up, track = WarmUp(BUDGET, tuple), MemoryTrack(lambda: None)
    return Instruments(clock=clock, update_clock=updates, warm_up=warm_up, track=track)


def _train(window: ProbeWatch, device: Device) -> None:
    step = Step(loss=_Loss(), samples=8, tokens=None, micro_batches=1, loader_wait_seconds=0.0, skipped=False)
    command = Order.CONTINUE
    while command is Order.CONTINUE:
        device.issue()
        command = window.step(step)


class _Loss:
    """Stays on the device."""

    class device:  # noqa: N801 - torch's name
        type = "cuda"


def test_the_host_s_clock_tells_every_interval_once() -> None:
    clock = HostClock()
    clock.mark()
    clock.mark()
    first = clock.passed()
    clock.mark()

    second = clock.passed()

    assert [*first, *second] == clock.intervals()
    assert (len(first), len(second), clock.passed()) == (1, 1, [])


def test_events_tell_what_the_device_has_done_and_leave_it_a_step_to_do(device: Device) -> None:
    clock, told = EventClock("cuda:0", device), []
    clock.mark()
    for _ in range(6):
        device.issue()
        clock.mark()
        told += clock.passed()
        assert device.time < device.ends[-1]

    assert told == pytest.approx([ISSUED + COMPUTED, *[COMPUTED] * 4])
    assert clock.intervals()[: len(told)] == pytest.approx(told)
    assert len(clock.intervals()) == 6


def test_a_window_lasts_as_long_as_the_device_needs_and_not_as_the_queue_of_the_host(device: Device) -> None:
    window, clock = _window(device)

    _train(window, device)

    seconds = clock.intervals()[: len(window.steps)]
    assert len(window.steps) == BUDGET.min_steps
    assert sum(seconds) == pytest.approx(BUDGET.min_steps * COMPUTED, rel=0.02)
    assert not window.ending.noisy


def test_updates_are_timed_on_the_device_without_waiting_for_it(device: Device) -> None:
    clock, updates = EventClock("cuda:0", device), EventClock("cuda:0", device)
    window = ProbeWatch(BUDGET, _instruments(clock, updates), LoopShape(cycle_ratio=4.0), Callbacks())
    step = Step(loss=_Loss(), samples=16, tokens=None, micro_batches=2, loader_wait_seconds=0.0, skipped=False)
    command, idle = Order.CONTINUE, []
    while command is Order.CONTINUE:
        device.issue()
        window.update()
        device.issue(0.03)
        window.update()
        command = window.step(step)
        idle.append(device.time >= device.ends[-1])

    assert window.update_seconds == pytest.approx([0.03] * len(window.steps))
    assert not any(idle[-len(window.steps) :])


def test_what_is_clearly_slower_on_the_device_is_cut_short_though_the_host_issues_it_fast(device: Device) -> None:
    window, _ = _window(device, incumbent=8 / COMPUTED / 0.8)

    _train(window, device)

    assert window.ending.cut_short
    assert len(window.steps) == 4
