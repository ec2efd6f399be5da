"""What the user's lines cost, from what was watched within steps: held against steps that were not watched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch

from autotune.profile import flops
from autotune.profile.judge import LEAST_SHARE
from autotune.profile.line_times import LineTimes, by_function
from autotune.profile.operations import Called, Operations, added
from autotune.profile.records import SlowLine, Slowness
from autotune.profile.user_lines import UserLine

DOUBLE_SIZE = 512  # of the square matrices whose products compare float64 with float32
WAITING_SHARE = 0.25  # of the time of a line, below which its thread had a core: it waited


class LineFindings:
    """The findings of one pass of `steps` steps; `parts` are the seconds of a step's parts without watching."""

    def __init__(
        self, operations: Operations, lines: LineTimes, steps: int, parts: Mapping[str, float], device: str
    ) -> None:
        self._operations, self._lines, self._steps, self._parts = operations, lines, steps, parts
        self._device = device
        self._passes = parts["forward"] + parts["backward"]

    def all(self) -> list[SlowLine]:
        """Return what was seen, whatever it costs."""
        loops = self._loops()
        within = {one.place.partition(" in ")[2] for one in loops}
        python = [one for one in self._python() if one.place.partition(" in ")[2] not in within]
        return [*loops, *python, *self._doubles(), *self._casts(), *self._clones(), *self._growing()]

    def _between(self, part: str) -> float:
        """Return what a second between operations is without watching.

        Watched steps are slower, and only what the others show beside operations is there.
        """
        real = max(0.0, self._parts[part] - self._operations.inside[part] / self._steps)
        total = self._lines.parts[part].total
        return min(1.0, real / (total / self._steps)) if total else 0.0

    def _python(self) -> list[SlowLine]:
        found = []
        for part, seconds in self._lines.parts.items():
            factor = self._between(part) / self._steps
            for line, of_function in by_function(seconds.own).items():
                is_waiting = seconds.busy[line] < WAITING_SHARE * seconds.own[line]
                kind: Slowness = "waiting" if is_waiting else "python"
                found.append(self._line(kind, line, line.function, 1.0, of_function * factor))
        return found

    def _loops(self) -> list[SlowLine]:
        """A line's share of both passes is that of the forward pass."""
        lines, between = self._operations.loops(), self._lines.parts["forward"].all
        factor, counts = self._between("forward"), Counter[UserLine]()
        for line, (_, called) in lines.items():
            counts[line] = called.seconds + between[line] * factor  # type: ignore[assignment]  # a counter of seconds
        return [
            self._line(
                "loop", line, lines[line][0], lines[line][1].count / self._steps,
                min(1.0, seconds / self._steps / self._parts["forward"]) * self._passes,
            )
            for line, seconds in by_function(counts).items()
        ]  # fmt: skip

    def _doubles(self) -> list[SlowLine]:
        """Their share of both passes is that of the operations; float32 is taken to be as much faster as a product."""
        line, inside = self._operations.doubling(), self._operations.inside["forward"]
        share = self._operations.doubled.total() / inside if inside else 0.0
        if line is None or share < LEAST_SHARE:
            return []
        single, double = (
            flops.peak_flops(self._device, dtype, DOUBLE_SIZE) for dtype in (torch.float32, torch.float64)
        )
        return [self._line("float64", line, "", 1.0, self._passes * share * max(0.0, 1 - double / single))]

    def _casts(self) -> list[SlowLine]:
        """Only where the way back is in the same steps: one way may be what the model needs."""
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
        return self._line(kind, line, what, called.count / self._steps, called.seconds / self._steps)

    def _line(self, kind: Slowness, line: UserLine, what: str, count: float, seconds: float) -> SlowLine:
        return SlowLine(kind=kind, place=line.place, code=line.text, what=what, count=count, seconds=seconds)
