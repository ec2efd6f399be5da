"""Computes the time of the user's lines from the readings of watched steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping

import torch

from autotune.profile.judge import LEAST_SLOW_LINE_SHARE
from autotune.profile.measuring import flops
from autotune.profile.measuring.line_times import LineTimes, by_function
from autotune.profile.measuring.operations import Called, Operations, added
from autotune.profile.measuring.user_lines import UserLine, slow_line
from autotune.profile.records import SlowLine, Slowness

DOUBLE_SIZE = 512  # of the square matrices whose products compare float64 with float32
# That watching adds between two operations. 1 and 5 us were seen, and 15 us beside other work (AMD EPYC, 2026-11-30).
WATCHING_SECONDS, MOST_WATCHING_SECONDS = 10e-6, 20e-6


class SlowLines:
    """The slow lines of one pass of `steps` steps.

    `parts` are the seconds of a step's parts without watching, in which others made computing longer by `stretch`.
    """

    def __init__(
        self, operations: Operations, lines: LineTimes, steps: int, parts: Mapping[str, float], device: str,
        stretch: float, driving: UserLine | None = None,
    ) -> None:  # fmt: skip
        """`driving`: the line that called the library which takes the steps: its time is the library's."""
        self._operations, self._lines, self._steps, self._parts = operations, lines, steps, parts
        self._device, self._stretch, self._driving = device, stretch, driving
        self._passes = parts["forward"] + parts["backward"]

    def all(self) -> list[SlowLine]:
        """Return all slow lines that were seen, however little time they take."""
        loops = self._loops()
        within = {_function_of(one) for one in loops}
        python = [one for one in self._python() if _function_of(one) not in within]
        return [*loops, *python, *self._doubles(), *self._casts(), *self._clones(), *self._growing()]

    def _beside(self, line: UserLine, seconds: float, watching: float) -> float:
        """Return what `seconds` of all steps, between operations of that line, are in one step that is not watched."""
        count = sum(one.count for (of, _, _), one in self._operations.called.items() if of == line)
        return max(0.0, seconds - count * watching * self._stretch) / self._steps

    def _watching(self, part: str) -> float:
        """Return the seconds that watching added between two operations, without others.

        The part took so much longer.
        """
        between, inside = self._lines.parts[part], self._operations.inside[part]
        watched = (between.total + between.unseen) * self._stretch + inside
        count = sum(one.count for (line, _, _), one in self._operations.called.items() if self._part(line) == part)
        added = (watched - self._parts[part] * self._steps) / max(1, count)
        return min(MOST_WATCHING_SECONDS, max(0.0, added / self._stretch))

    def _part(self, line: UserLine) -> str:
        return "other" if line in self._operations.between_steps else "forward"

    def _python(self) -> list[SlowLine]:
        """Return lines that compute or wait outside of torch, without time in which others had their core."""
        found = []
        for part, seconds in self._lines.parts.items():
            for line, of_function in by_function(self._own(part)).items():
                kind: Slowness = "waiting" if seconds.idle[line] > seconds.busy[line] else "python"
                found.append(slow_line(kind, line, line.function, 1.0, min(of_function, self._parts[part])))
        return found

    def _own(self, part: str) -> Counter[UserLine]:
        """Return the seconds of a step that lines take outside of torch."""
        own, seconds = Counter[UserLine](), self._lines.parts[part]
        watching = max(WATCHING_SECONDS, self._watching(part))
        for line in seconds.busy.keys() - {self._driving}:
            passed = seconds.spent(line).stretched(self._stretch)
            own[line] = self._beside(line, passed * seconds.factor, watching)  # type: ignore[assignment]
        return own

    def _loops(self) -> list[SlowLine]:
        """Return loops over small operations, with what their function does outside of torch.

        Of the backward pass a line takes its share in watched steps. Where it has one, what one operation on everything
        would take is no cost.
        """
        lines = {line: one for line, one in self._operations.loops().items() if self._part(line) in self._lines.parts}
        backward, counts, later = self._operations.backward.seconds, Counter[UserLine](), Counter[UserLine]()
        for line in lines:
            part = self._part(line)
            beside = self._beside(line, self._lines.parts[part].all[line] * self._stretch, self._watching(part))
            inside, left = self._operations.of_loop(line)
            left *= backward[line] > 0  # what no gradient goes through may be for a log, and left out altogether
            share = (1 - left) * backward[line] / (backward.total() or 1.0)
            counts[line] = beside + (1 - left) * inside / self._steps  # type: ignore[assignment]  # counters of seconds
            later[line] = share * self._parts["backward"]  # type: ignore[assignment]
        return [
            slow_line(
                "loop", line, lines[line][0], lines[line][1].count / self._steps,
                min(seconds + self._around(line, lines), self._parts[self._part(line)])
                + sum(gradients for other, gradients in later.items() if _are_together(other, line)),
            )
            for line, seconds in by_function(counts).items()
        ]  # fmt: skip

    def _around(self, loop: UserLine, loops: Container[UserLine]) -> float:
        """Return the seconds outside of torch of all lines in the function of `loop` that are no loops themselves."""
        own = [one for part in self._lines.parts for one in self._own(part).items()]
        return sum(seconds for line, seconds in own if _are_together(line, loop) and line not in loops)

    def _doubles(self) -> list[SlowLine]:
        """Return the line of float64; float32 is assumed to be as much faster as in a matrix product."""
        line, inside = self._operations.doubling(), self._operations.inside["forward"]
        share = self._operations.doubled.total() / inside if inside else 0.0
        if line is None or share < LEAST_SLOW_LINE_SHARE:
            return []
        single, double = (
            flops.peak_flops(self._device, dtype, DOUBLE_SIZE) for dtype in (torch.float32, torch.float64)
        )
        return [slow_line("float64", line, "", 1.0, self._passes * share * max(0.0, 1 - double / single))]

    def _casts(self) -> list[SlowLine]:
        """Return casts that are undone in the same steps: a cast in one direction may be needed."""
        found, casts = [], self._operations.casts
        for (source, made), lines in casts.items():
            back = casts.get((made, source))
            if back and (str(source) < str(made)) and torch.float64 not in (source, made):
                both = [*lines.items(), *back.items()]
                line = max(both, key=lambda one: one[1].seconds)[0]
                what = f"{source} to {made}".replace("torch.", "")
                found.append(self._called("casting", line, what, added(called for _, called in both)))
        return found

    def _clones(self) -> list[SlowLine]:
        return [
            self._called("clone", line, "clone()", called)
            for line, called in self._operations.needless.items()
            if line not in self._operations.changed
        ]

    def _growing(self) -> list[SlowLine]:
        return [
            self._called("growing", line, f"{name}()", called)
            for (line, name), called in self._operations.growing().items()
        ]

    def _called(self, kind: Slowness, line: UserLine, what: str, called: Called) -> SlowLine:
        return slow_line(kind, line, what, called.count / self._steps, called.seconds / self._steps)


def _function_of(one: SlowLine) -> tuple[str, str]:
    """Return the file and the function of its place, `model.py:31 in loss`."""
    at, _, function = one.place.partition(" in ")
    return at.rpartition(":")[0], function


def _are_together(line: UserLine, other: UserLine) -> bool:
    """Return whether two lines are in the same function."""
    return (line.file, line.function) == (other.file, other.function)
