"""The timer that looks which line runs, and interrupts everything: also itself."""

import signal
import sys
import time

from autotune.profile.measuring import line_times
from autotune.profile.measuring.core_time import ThreadMoment
from autotune.profile.measuring.line_times import TIMER_TICK_SECONDS, LineTimes
from autotune.profile.measuring.stopwatch import Stopwatch


def test_a_look_that_the_timer_interrupts_counts_no_time_twice_or_below_zero(monkeypatch):
    stopwatch = Stopwatch("cpu")
    lines, clock, interrupts = LineTimes(stopwatch, ("data",)), iter(range(100)), [True]

    def now():
        time = next(clock)
        if interrupts and interrupts.pop():
            lines.look(sys._getframe())  # as the timer does, once the clock was read
        return ThreadMoment(float(time), float(time), 0)

    monkeypatch.setattr(line_times, "moment", now)
    stopwatch.begin("data")
    interrupts.clear()
    lines.restart()
    interrupts.append(True)
    lines.look(sys._getframe())

    assert lines.parts["data"].total == 1.0


def test_while_others_had_its_core_no_line_took_time(monkeypatch):
    moments = iter([(0, 0, 0), (9, 2, 0), (9, 2, 0), (14, 3, 1), (14, 3, 1)])  # 7 of 9 seconds without a core; a wait
    monkeypatch.setattr(line_times, "moment", lambda: ThreadMoment(*next(moments)))
    lines = LineTimes(stopwatch := Stopwatch("cpu"), ("data",))
    stopwatch.begin("data")
    lines.restart()

    for _ in range(2):
        lines.look(sys._getframe())

    assert lines.parts["data"].total == 2 + 5


def test_while_it_is_paused_the_timer_counts_nothing():
    lines = LineTimes(stopwatch := Stopwatch("cpu"), ("data",))
    stopwatch.begin("data")

    with lines.watched():
        lines.pause()
        before = lines.parts["data"].total
        until = time.perf_counter() + 100 * TIMER_TICK_SECONDS
        while time.perf_counter() < until:
            pass
        after = lines.parts["data"].total
        lines.resume()
        is_blocked = signal.SIGALRM in signal.pthread_sigmask(signal.SIG_BLOCK, ())

    assert after == before
    assert not is_blocked
