"""The time of the main thread by the user's line, in parts of a step: a timer looks four times a millisecond.

    user's line ─ Python ─► operation ─ torch ─► user's line ─ Python, NumPy, files ─► ...
                     ▲                                  ▲
                     └── counted for the line ──────────┘  by the signal, and by who calls `look`

All time since the last look counts for the line that runs. Where the thread computed is told from where it waited, and
from where others had its core, for which no line can help.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from autotune.profile.measuring.core_time import Spent, ThreadMoment, moment, spent
from autotune.profile.measuring.stopwatch import Stopwatch
from autotune.profile.measuring.user_lines import UserLine, nearest_line
from autotune.profile.records import Part

TIMER_TICK_SECONDS = 0.00025  # of the timer: a line that takes a hundredth of a step of 50 ms is seen in every step


@dataclass
class LineSeconds:
    """The seconds by line of one part, over all steps together."""

    total: float = 0.0  # of what was looked at; as all others without time in which other processes had the core
    unseen: float = 0.0  # after the last look of a part, up to its end
    busy: Counter[UserLine] = field(default_factory=Counter)  # it computed, and called no code of torch's
    idle: Counter[UserLine] = field(default_factory=Counter)  # likewise, and waited for something else than a core
    all: Counter[UserLine] = field(default_factory=Counter)  # whatever the line called

    def spent(self, line: UserLine) -> Spent:
        """Return the seconds in which a line called no code of torch's."""
        return Spent(self.busy[line], self.idle[line])

    @property
    def factor(self) -> float:
        """The factor of all times: unseen time is assumed to be distributed like the seen time."""
        return 1 + self.unseen / self.total if self.total else 1.0


class LineTimes:
    """Times the lines in the given parts while it is entered; to be entered in the main thread.

    Others make what is computed longer by the factor `stretch`: then the timer looks as much less often.
    """

    def __init__(self, stopwatch: Stopwatch, parts: tuple[Part, ...], stretch: float = 1.0) -> None:
        self.stopwatch, self._part, self._tick = stopwatch, "", TIMER_TICK_SECONDS * stretch
        self.parts: dict[str, LineSeconds] = {part: LineSeconds() for part in parts}
        self._last: ThreadMoment | None = None  # None: in another part
        self.is_counted_elsewhere: Callable[[], bool] = lambda: False

    @property
    def part(self) -> str:
        """The part that is looked at now; empty: another one."""
        return self._part

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Start the timer that looks at the running line, and stop it when the `with` block ends."""
        before = signal.signal(signal.SIGALRM, lambda number, frame: self.look(frame))
        signal.setitimer(signal.ITIMER_REAL, self._tick, self._tick)
        self.stopwatch.listeners.append(self._part_changed)
        self.restart()
        try:
            yield
        finally:
            self.stopwatch.listeners.remove(self._part_changed)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            if threading.current_thread() is threading.main_thread():  # else a program ended within its steps
                signal.signal(signal.SIGALRM, before)

    def restart(self) -> None:
        """Drop the time since the last look: it belongs to another part of a step, or is counted elsewhere."""
        self._last = None
        part = self.stopwatch.current
        self._part = part if part in self.parts else ""
        self._last = moment() if self._part else None

    def pause(self) -> None:
        """Keep the timer from interrupting this thread until `resume`: that time is counted elsewhere."""
        self._last = None
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGALRM,))

    def resume(self) -> None:
        """Let the timer look again, from now on."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
        self.restart()

    def _part_changed(self) -> None:
        last, self._last = self._last, None
        if last is not None and not self.is_counted_elsewhere():
            self.parts[self._part].unseen += sum(spent(last, moment()))
        self.restart()

    def look(self, frame: FrameType | None) -> None:
        """Count the time since the last look for the running line.

        The timer may interrupt this function: it then finds no last look, so that no time counts twice or negatively.
        """
        if self._last is None or self.is_counted_elsewhere():
            return
        last, self._last = self._last, None
        took, seconds = spent(last, moment()), self.parts[self._part]
        seconds.total += sum(took)
        line, is_through_torch = nearest_line(frame)
        if line is not None:
            seconds.all[line] += sum(took)  # type: ignore[assignment]  # a counter of seconds, as the others
            if not is_through_torch:
                seconds.busy[line] += took.busy  # type: ignore[assignment]
                seconds.idle[line] += took.idle  # type: ignore[assignment]
        self._last = moment()  # what looking took is no line's


def by_function(lines: Counter[UserLine]) -> dict[UserLine, float]:
    """Return the seconds of every function, under the line of it that took most."""
    functions = defaultdict[tuple[str, str], Counter[UserLine]](Counter)
    for line, seconds in lines.items():
        functions[line.file, line.function][line] = seconds
    return {of.most_common(1)[0][0]: sum(of.values()) for of in functions.values()}
