"""The measuring window, driven by steps made by hand and a clock that is set by hand."""

import itertools
import weakref
from dataclasses import replace as replace_field
from functools import partial

import pytest
import torch
from msgspec.structs import replace

from autotune.child import window as windows
from autotune.child.full_collections import FullCollections
from autotune.child.memory_trace import MemoryTrack
from autotune.child.warmup import WarmUp
from autotune.child.watched_loop import Callbacks, Instruments, LoopShape
from autotune.child.window import ProbeWatch, UnstableTraining
from autotune.core.requests import ProbeBudget
from autotune.targets.base import Order, Step

BUDGET = ProbeBudget(min_warmup_steps=3, min_warmup_seconds=0.0, min_steps=8, min_seconds=0.75, max_seconds=4.0)


class Time:
    """Stands for `time.perf_counter` and for the device's clock."""

    def __init__(self):
        self.time = 0.0
        self.marks = []
        self.told = 0

    def perf_counter(self):
        return self.time

    def thread_time(self):
        return self.time

    def mark(self):
        self.marks.append(self.time)

    def now(self):
        return self.time

    def intervals(self):
        return [b - a for a, b in zip(self.marks, self.marks[1:], strict=False)]

    def passed(self):
        intervals = self.intervals()
        new, self.told = intervals[self.told :], len(intervals)
        return new

    def between(self, first, last):
        return self.marks[last] - self.marks[first]


@pytest.fixture
def clock(monkeypatch):
    hand = Time()
    monkeypatch.setattr(windows, "time", hand)
    return hand


def _step(skipped=0, micro_batches=1, loss=1.0, samples=8, steps=1):
    return Step(
        loss=torch.tensor(loss), steps=steps, samples=steps * samples, tokens=None, micro_batches=steps * micro_batches,
        loader_wait_seconds=0.0, skipped=skipped,
    )  # fmt: skip


def _drive(window, clock, seconds, most=10_000, loading=0.1, samples=8, step=_step):
    """Steps of `seconds(number)` and batches of `loading` seconds until the window stops; the commands it gave."""
    commands = [Order.CONTINUE]
    numbers = itertools.count()
    for _ in range(most):
        if commands[-1] is Order.LOAD:
            clock.time += loading
            commands.append(window.loaded(samples))
        else:
            clock.time += sum(seconds(next(numbers)) for _ in range(window.steps_at_once))
            commands.append(window.step(step(steps=window.steps_at_once)))
        if commands[-1] is Order.STOP:
            return commands[1:]
    raise AssertionError("the window never stopped")


def _window(
    clock, workers=0, budget=BUDGET, phases=None, loads=False, ready=0, held=lambda: 1, incumbent=None, epoch=0
):
    shape = LoopShape(loader_workers=workers, prefetched_batches=ready, loads=loads, epoch_batches=epoch)
    callbacks = Callbacks(phase=(phases if phases is not None else []).append)
    return ProbeWatch(budget, _instruments(clock, budget, held), shape, callbacks, incumbent)


def _instruments(clock, budget=BUDGET, held=lambda: 1, updates=None):
    warm_up, track = WarmUp(budget, lambda: ()), MemoryTrack(held)
    return Instruments(clock=clock, update_clock=updates, warm_up=warm_up, track=track)


def _driven(clock, seconds, loading=0.1, samples=8, step=_step, **options):
    """A window with these options, driven until it stopped."""
    window = _window(clock, **options)
    _drive(window, clock, seconds, loading=loading, samples=samples, step=step)
    return window


def test_computing_alone_and_loading_alone_come_between_the_warm_up_and_the_window(clock):
    phases = []

    commands = _drive(_window(clock, workers=2, ready=4, loads=True, phases=phases), clock, lambda n: 0.11)

    stages = [command for command, before in zip(commands, [None, *commands], strict=False) if command is not before]
    assert stages == [Order.CONTINUE, Order.REPEAT, Order.LOAD, Order.CONTINUE, Order.STOP]
    assert commands.count(Order.REPEAT) == 5  # half a second of steps
    assert commands.count(Order.LOAD) == 4 + 3 * 2  # what the workers held ready, then three turns of both
    assert phases == ["alone", "measure"]


def _in_epochs(clock, batches, restart, length=0.1, **options):
    """A window on epochs of so many batches, each of which takes `restart` to begin."""
    window, taken = _window(clock, epoch=batches, **options), itertools.count(1)

    def step(**told):
        number = next(taken)
        if number > 1 and number % batches == 1:
            window.epoch()
            clock.time += restart
        return _step(**told)

    _drive(window, clock, lambda n: length, step=step)
    return window


@pytest.mark.parametrize("batches", [9, 12, 16, 23])
def test_a_window_is_of_whole_epochs_where_they_are_few(clock, batches):
    window = _in_epochs(clock, batches, restart=1.0)

    assert len(window.steps) % batches == 0
    assert sum(window.step_seconds()) / len(window.steps) == pytest.approx(0.1 + 1.0 / batches)


@pytest.mark.parametrize(("batches", "length", "steps"), [(200, 0.1, 8), (3, 0.02, 38)], ids=["long", "many"])
def test_a_window_does_not_wait_for_epochs_that_are_long_or_many(clock, batches, length, steps):
    window = _in_epochs(clock, batches, restart=0.0, length=length)

    assert len(window.steps) == steps


def test_nothing_waits_for_an_epoch_beyond_three_times_the_longest_window(clock):
    window = _in_epochs(clock, 20, restart=20.0)

    assert sum(window.step_seconds()) <= 3 * BUDGET.max_seconds + 20.0


def test_an_evaluation_is_left_out_of_warm_up_and_window(clock):
    taken = itertools.count()

    def evaluated(**told):
        pause = 2.0 if next(taken) % 3 == 0 else 0.0
        clock.time += pause
        return replace(_step(**told), paused_seconds=pause)

    window = _driven(clock, lambda n: 0.1, step=evaluated)

    assert window.warmup_seconds == pytest.approx([0.1] * len(window.warmup_seconds))
    assert window.step_seconds() == pytest.approx([0.1] * len(window.steps))
    assert sum(step.paused_seconds for step in window.steps) > 0


class Collections(FullCollections):
    """One of 0.5 s in every twentieth step, and in the first of those that are not trained on."""

    def step(self, step):
        self._fresh += 0.5 * sum((self._steps + 1 + number) % 20 == 0 for number in range(step.steps))
        super().step(step)

    def begin(self):
        self._fresh += 0.5
        super().begin()


def _collecting(clock, waited=0.0, most=6.0, **options):
    """A window of steps whose every twentieth has such a collection, in its wait for a batch if it waits."""

    def collecting(steps):
        long = sum(next(taken) % 20 == 0 for _ in range(steps))
        clock.time += 0.5 * long
        return replace(_step(steps=steps), loader_wait_seconds=steps * waited + 0.5 * long * bool(waited))

    taken, budget = itertools.count(1), replace(BUDGET, max_seconds=most)
    instruments = replace_field(_instruments(clock, budget=budget), collections=Collections())
    return ProbeWatch(budget, instruments, LoopShape(), Callbacks(), **options), collecting


@pytest.mark.parametrize("waited", [0.0, 0.02])
@pytest.mark.parametrize("length", [0.05, 0.004])
def test_full_collections_count_for_all_steps_alike(clock, length, waited):
    window, collecting = _collecting(clock, waited=waited * length / 0.05)
    _drive(window, clock, lambda n: length, step=collecting)

    steps = window.steps_per_block
    assert (steps > 1) is (length < 0.005)
    seconds, waits = window.step_seconds(), [step.loader_wait_seconds for step in window.steps]
    assert seconds == pytest.approx([steps * (length + 0.5 / 20)] * len(seconds), rel=0.05)
    assert waits == pytest.approx([steps * (0.4 * length + 0.5 / 20) * bool(waited)] * len(waits), rel=0.05)
    assert window.ending.half_width() < 0.01
    assert not window.ending.noisy


@pytest.mark.parametrize("seconds", [0.05, 0.02, 0.004])
def test_no_training_is_given_up_that_is_as_fast_as_the_best_with_its_full_collections(clock, seconds):
    window, collecting = _collecting(clock, incumbent=8 / (seconds + 0.5 / 20))
    _drive(window, clock, lambda n: seconds, step=collecting)

    assert not window.ending.cut_short


@pytest.mark.parametrize("most", [6.0, 2.0])
def test_a_window_lasts_no_longer_for_its_full_collections(clock, most):
    window, collecting = _collecting(clock, most=most)
    began = clock.time
    _drive(window, clock, lambda n: 0.05, step=collecting)

    assert clock.time - began < most + 3.0  # with its warm-up


def test_computing_and_loading_have_rates_of_their_own(clock):
    window = _driven(clock, lambda n: 0.1, loading=0.02, samples=4, workers=2, ready=4, loads=True)

    assert window.computing.result.samples_per_second == pytest.approx(8 / 0.1)
    assert window.loading.result.samples_per_second == pytest.approx(4 / 0.02)
    assert window.loading.result.samples == 2 * 4


def test_without_a_loader_nothing_is_told_apart(clock):
    window = _window(clock, workers=2)

    commands = _drive(window, clock, lambda n: 0.1)

    assert set(commands) == {Order.CONTINUE, Order.STOP}
    assert (window.computing.result, window.loading.result) == (None, None)


def test_steps_on_a_repeated_batch_leave_no_loss_and_no_skip(clock):
    window = _window(clock, loads=True)
    command, learned = Order.CONTINUE, 0
    while command is not Order.STOP:
        clock.time += 0.1
        repeated = command is Order.REPEAT
        learned += command is Order.CONTINUE
        step = _step(loss=7.0 if repeated else 1.0, skipped=repeated)
        command = window.loaded(8) if command is Order.LOAD else window.step(step)

    assert window.losses() == (1.0,) * learned
    assert window.skipped_steps == 0


def test_an_epoch_that_ends_while_draining_has_drained(clock):
    window = _window(clock, workers=8, ready=16, loads=True)
    command = Order.CONTINUE
    while command is not Order.LOAD:
        if command is Order.CONTINUE:
            window.epoch()  # during the warm-up it means nothing
        clock.time += 0.1
        command = window.step(_step())

    drained = 0
    while command is Order.LOAD:
        if drained == 3:  # there were three in the epoch
            window.epoch()
        clock.time += 0.1
        command = window.loaded(8)
        drained += 1

    assert drained == 3 + 2 * 8  # two turns take longer than a second
    assert window.loading.result.samples == 64


def test_memory_is_read_at_every_step_end_of_the_window(clock):
    held = iter(range(10_000))
    window = _driven(clock, lambda n: 0.1, held=lambda: next(held))

    assert window.track.readings == tuple((number, number) for number in range(len(window.steps)))


def test_what_others_did_is_told_at_the_end(clock):
    window = _window(clock)
    before = window.interference

    _drive(window, clock, lambda n: 0.1)

    assert before is None
    assert window.interference is not None


def test_slow_first_steps_are_not_in_the_window(clock):
    window = _driven(clock, lambda n: 1.0 if n < 2 else 0.1)

    assert max(clock.intervals()) == pytest.approx(0.1)
    assert window.warmup_seconds == pytest.approx([1.0, 1.0])


def test_a_window_that_is_far_slower_than_the_incumbent_stops_early_and_keeps_what_it_measured(clock):
    window = _driven(clock, lambda n: 0.11, incumbent=8 / 0.11 / 0.5)

    assert window.ending.cut_short
    assert len(window.steps) == len(clock.intervals()) == 2
    assert window.interference is not None


def _cycles(clock, window, micro_batch=0.04, update=0.06, cycle=2):
    """Cycles of micro-batches and an update, in a session that tells of the update, until the window stops."""
    command = Order.CONTINUE
    while command is not Order.STOP:
        for left in range(window.steps_at_once, 0, -1):
            clock.time += cycle * micro_batch
            if left == 1:
                window.update()
            clock.time += update
            if left == 1:
                window.update()
        command = window.step(_step(micro_batches=cycle, samples=8 * cycle, steps=window.steps_at_once))


@pytest.mark.parametrize("short", [1.0, 0.01])
def test_the_optimizers_time_is_told_apart_also_in_blocks_of_short_steps(clock, monkeypatch, short):
    updates = Time()
    monkeypatch.setattr(updates, "mark", lambda: updates.marks.append(clock.time))
    window = ProbeWatch(BUDGET, _instruments(clock, updates=updates), LoopShape(cycle_ratio=4.0), Callbacks())

    _cycles(clock, window, 0.04 * short, 0.06 * short)

    assert window.update_seconds == pytest.approx((0.06 * short,) * len(window.steps))
    assert (window.steps_per_block > 1) == (short < 1)


@pytest.mark.parametrize(("cycle_ratio", "cut"), [(1.0, True), (4.0, False)])
def test_it_is_the_rate_of_full_cycles_that_is_held_against_the_incumbent(clock, monkeypatch, cycle_ratio, cut):
    updates = Time()
    monkeypatch.setattr(updates, "mark", lambda: updates.marks.append(clock.time))
    full = 8 * 8 / (8 * 0.04 + 0.06)  # two micro-batches and the update take 0.14 s: 114 samples/s, eight 168
    shape = LoopShape(cycle_ratio=cycle_ratio)
    window = ProbeWatch(BUDGET, _instruments(clock, updates=updates), shape, Callbacks(), full)

    _cycles(clock, window)

    assert window.ending.cut_short == cut


@pytest.mark.parametrize(("cycle_ratio", "cut"), [(1.0, True), (4.0, False)])
def test_a_full_cycle_is_held_against_the_incumbent_with_one_exchange(clock, monkeypatch, cycle_ratio, cut):
    updates = Time()
    monkeypatch.setattr(updates, "mark", lambda: updates.marks.append(clock.time))
    full = 8 * 8 / (8 * 0.04 + 0.06)  # the exchange takes what the update takes above
    shape = LoopShape(exchanges=True, cycle_ratio=cycle_ratio)
    window = ProbeWatch(BUDGET, _instruments(clock, updates=updates), shape, Callbacks(), full)

    command = Order.CONTINUE
    while command is not Order.STOP:
        if command is Order.EXCHANGE:
            clock.time += 0.04
            assert window.micro_step(exchanges=False) is Order.EXCHANGE
            clock.time += 0.04 + 0.06
            command = window.micro_step(exchanges=True)
            continue
        clock.time += window.steps_at_once * (2 * 0.04 + 0.06)
        window.update()
        window.update()
        command = window.step(_step(micro_batches=2, samples=16, steps=window.steps_at_once))

    assert window.ending.cut_short == cut


@pytest.mark.parametrize(("seconds", "steps"), [(0.09, 6 + 1 + 9), (0.4, 4 + 4), (1.0, 2 + 3), (1.6, 2 + 2)])
def test_long_steps_are_few(clock, seconds, steps):
    window = _window(clock)

    commands = _drive(window, clock, lambda n: seconds)

    assert len(commands) == steps  # warm-up, settling of short ones, window
    assert len(window.steps) * seconds <= max(BUDGET.max_seconds, 2 * seconds)


@pytest.mark.parametrize(("loading", "steps"), [(0.3, 3), (0.9, 6)])
def test_turns_of_workers_that_load_fast_enough_are_not_waited_for(clock, loading, steps):
    window = _driven(clock, lambda n: 1.0, loading=loading, workers=8, loads=True)

    assert len(window.steps) == steps


def test_the_window_is_a_whole_multiple_of_the_workers(clock):
    window = _driven(clock, lambda n: 0.11, workers=3)

    assert len(window.steps) % 3 == 0
    assert len(clock.intervals()) == len(window.steps)


def test_a_steady_run_ends_as_soon_as_it_may(clock):
    window = _driven(clock, lambda n: 0.1)

    assert len(window.steps) == 8
    assert not window.ending.noisy


def test_an_unsteady_run_goes_on_to_the_cap_and_is_called_noisy(clock):
    window = _driven(clock, lambda n: 0.3 if n % 7 == 0 else 0.05)

    assert sum(clock.intervals()) >= BUDGET.max_seconds
    assert window.ending.noisy


@pytest.mark.parametrize(("taken", "measured"), [(5, 0), (12, 0), (30, 21), (31, 21), (32, 21), (33, 24)])
def test_a_training_that_ends_by_itself_is_measured_if_whole_turns_of_it_make_a_window(clock, taken, measured):
    window = _window(clock, workers=3)
    for number in range(taken):
        clock.time += 0.3 if number % 7 == 0 else 0.05
        assert window.step(_step()) is Order.CONTINUE

    assert window.ended() == (measured > 0)
    assert not measured or (len(window.steps), window.ending.noisy) == (measured, True)


def test_the_spread_is_looked_at_rarely_because_the_next_step_pays_for_it(clock, monkeypatch):
    window = _window(clock, budget=replace(BUDGET, min_seconds=8.25, max_seconds=44.0))
    looks = []
    measure = window.ending.half_width
    monkeypatch.setattr(window.ending, "half_width", lambda: looks.append(len(window.steps)) or measure())

    _drive(window, clock, lambda n: 0.055 if n // 200 % 2 else 0.011)  # never precise enough

    assert len(window.steps) > 1000
    assert len(looks) < 20


def test_very_slow_steps_end_at_two(clock):
    window = _driven(clock, lambda n: 30.0)

    assert len(window.steps) == 2
    assert len(window.warmup_seconds) == 2


def test_the_warm_up_lasts_until_two_steps_succeeded(clock):
    window = _window(clock)
    for _ in range(6):
        clock.time += 0.1
        assert window.step(_step(skipped=True)) is Order.CONTINUE

    _drive(window, clock, lambda n: 0.1)

    assert window.calibration_skips == 6
    assert window.skipped_steps == 0
    assert len(window.warmup_seconds) == 8


def test_a_scaler_that_never_lets_a_step_through_is_instability(clock):
    window = _window(clock)

    with pytest.raises(UnstableTraining, match="11 optimizer steps"):
        _drive(window, clock, lambda n: 0.1, step=partial(_step, skipped=True))


def test_skips_after_the_first_success_are_counted_apart(clock):
    window = _window(clock)
    for skipped in (True, False, True):
        clock.time += 0.1
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


def test_steps_below_a_millisecond_are_looked_at_in_blocks(clock):
    beats = []
    window = _window(clock)
    window._beat = lambda: beats.append(clock.time)

    commands = _drive(window, clock, lambda n: 0.0005)

    assert window.steps_per_block == 20  # as many as a hundredth of a second holds
    assert {step.samples for step in window.steps} == {20 * 8}
    assert {step.micro_batches for step in window.steps} == {20}
    assert sum(step.samples for step in window.steps) / sum(clock.intervals()) == pytest.approx(8 / 0.0005)
    assert sum(clock.intervals()) >= BUDGET.min_seconds
    assert len(beats) == len(commands)
    assert all(step % 20 == 19 for step, _ in window.track.readings)


@pytest.mark.parametrize("ready", [0, 16])
def test_steps_that_are_short_between_the_bursts_of_workers_are_looked_at_one_by_one(clock, ready):
    window, numbers = _window(clock, workers=8, ready=ready, loads=True), itertools.count()

    def burst(_):
        """Computing takes 0.2 ms; every eighth batch is waited for, as soon as those that were held ready are used."""
        number = next(numbers)
        return 0.0002 + (0.8 if number % 8 == 0 and number >= ready else 0.0)

    _drive(window, clock, burst, loading=0.1)

    assert window.steps_per_block == 1
    assert sum(clock.intervals()) < 2 * BUDGET.max_seconds


def test_long_steps_are_looked_at_one_by_one(clock):
    window = _driven(clock, lambda n: 0.1)

    assert window.steps_per_block == 1
    assert len(clock.intervals()) == len(window.steps)


def test_computing_alone_has_its_rate_where_short_steps_are_looked_at_in_blocks(clock):
    window = _driven(clock, lambda n: 0.0005, loading=0.0005, workers=2, ready=4, loads=True)

    assert window.computing.result.samples_per_second == pytest.approx(8 / 0.0005)
    assert window.computing.result.samples == window.steps_per_block * 8


def test_a_block_whose_loss_is_not_finite_has_none(clock):
    window = _window(clock)

    _drive(
        window, clock, lambda n: 0.0005,
        step=lambda steps: _step(loss=float("nan") if len(window.steps) == 2 else 1.0, steps=steps),
    )  # fmt: skip

    assert window.losses().count(None) == 1
    assert set(window.losses()) == {1.0, None}


def test_every_step_that_a_block_skips_is_counted(clock):
    window = _window(clock)

    _drive(
        window, clock, lambda n: 0.0005,
        step=lambda steps: _step(skipped=3 if len(window.steps) == 1 else 0, steps=steps),
    )  # fmt: skip

    assert window.skipped_steps == 3


@pytest.mark.parametrize("seconds", [0.1, 0.0005], ids=["one by one", "in blocks"])
def test_no_loss_tensor_of_the_cpu_outlives_its_step_or_block(clock, seconds):
    """The window must not itself change the memory that it measures."""
    window, command, alive = _window(clock), Order.CONTINUE, []
    while command is not Order.STOP:
        clock.time += seconds * window.steps_at_once
        step = replace(_step(steps=window.steps_at_once), loss=torch.tensor(float(len(alive))))
        alive.append(weakref.ref(step.loss))
        command = window.step(step)
        del step

        assert alive[-1]() is None
    assert window.losses() == tuple(float(number) for number in range(len(alive)))


def test_watching_is_told_per_optimizer_step_without_the_settling_before_it(clock):
    window = _window(clock)

    _drive(
        window, clock, lambda n: 0.0005,
        step=lambda steps: replace(_step(steps=steps), watching_seconds=2e-6 * steps if window.steps else 1.0),
    )  # fmt: skip

    assert window.watching_seconds_per_step == pytest.approx(2e-6)


def test_ranks_do_what_rank_0_decides_and_keep_as_many_steps(clock):
    said, shape = [], LoopShape(loads=True, loader_workers=2, prefetched_batches=4)
    saying = Callbacks(agree=lambda value: said.append(int(value)) or value)
    first = ProbeWatch(BUDGET, _instruments(clock), shape, saying)
    orders = _drive(first, clock, lambda n: 0.11)
    told = iter(said)
    clock.time, clock.marks, clock.told = 0.0, [], 0
    impatient = ProbeBudget(min_warmup_steps=1, min_warmup_seconds=0.0, min_steps=2, min_seconds=0.1, max_seconds=0.2)
    hearing = Callbacks(agree=lambda value: next(told))
    other = ProbeWatch(impatient, _instruments(clock, impatient), shape, hearing)

    assert _drive(other, clock, lambda n: 0.05 + 0.01 * (n % 3)) == orders
    assert len(other.steps) == len(first.steps)
    assert (other.ending.noisy, other.ending.cut_short) == (first.ending.noisy, first.ending.cut_short)
    assert next(told, None) is None
