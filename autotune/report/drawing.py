"""The parts from which charts are drawn: sizes, axes, a plane of pixels, signs and a legend."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autotune.harmless import cropped, markup

CHARACTER = 6.9  # pixels of a character of 12 px, on average over numbers and words (DejaVu Sans, the widest usual one)
LINE = 15  # pixels that a line of text needs


@dataclass(frozen=True, kw_only=True)
class Size:
    """The drawing in pixels, and what is kept free around the plane."""

    width: int
    height: int
    kind: str  # class of the drawing, by which the page chooses
    left: int = 54
    right: int = 16
    top: int = 34
    bottom: int = 46


WIDE = Size(width=520, height=320, kind="wide")
NARROW = Size(width=340, height=300, left=48, kind="narrow")
THOUSANDS_FROM = 10_000


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis: the place of a value, the ticks, and the title."""

    title: str
    share: Callable[[float], float]  # of the axis' length, 0..1
    ticks: tuple[tuple[float, str], ...]


def logarithmic(values: Sequence[int], title: str) -> Axis:
    """Return a logarithmic axis to base 2, with a tick at every value."""
    low, high = math.log2(min(values)), math.log2(max(values))

    def share(value: float) -> float:
        return 0.5 if high == low else 0.05 + 0.9 * (math.log2(value) - low) / (high - low)

    return Axis(title=title, share=share, ticks=tuple((value, f"{value:,}") for value in sorted(set(values))))


def ordinal(names: Mapping[int, str], title: str) -> Axis:
    """Return an axis with one place for each value, under its name."""
    places = {value: (index + 0.5) / len(names) for index, value in enumerate(names)}
    return Axis(title=title, share=lambda value: places[int(value)], ticks=tuple(names.items()))


def linear(high: float, title: str, low: float = 0.0, lines: int = 5) -> Axis:
    """Return an axis with about `lines` round ticks, from a round number at or below `low` to one at or above `high`.

    Large numbers are written in thousands, `20k`: five digits do not fit left of a narrow chart.
    """
    step = _round_step((high - low) / lines) if high > low else 1.0
    show = _thousands if high >= THOUSANDS_FROM else "{:,.10g}".format
    first, last = math.floor(low / step + 1e-9), max(math.ceil(high / step - 1e-9), math.floor(low / step) + 1)
    ticks = tuple((index * step, show(round(index * step, 10))) for index in range(first, last + 1))
    return Axis(title=title, share=lambda value: (value / step - first) / (last - first), ticks=ticks)


def _thousands(value: float) -> str:
    return f"{value / 1000:,.10g}k" if value else "0"


def _round_step(rough: float) -> float:
    power: float = 10.0 ** math.floor(math.log10(rough))
    return min((power * factor for factor in (1, 2, 5, 10)), key=lambda step: abs(step - rough))


@dataclass(frozen=True, kw_only=True)
class Plane:
    """Maps values to pixels; a value beyond an axis is drawn at its edge."""

    size: Size
    across: Axis
    up: Axis
    names: Sequence[str] = ()  # of the series, in a legend above it

    @property
    def right(self) -> int:
        """The x of the right edge, in pixels."""
        return self.size.width - self.size.right

    @property
    def top(self) -> int:
        """The y of the upper edge, in pixels."""
        return self.size.top + len(legend_lines(self.names, self.size)) * (LINE + 3)

    @property
    def bottom(self) -> int:
        """The y of the lower edge, in pixels."""
        return self.size.height - self.size.bottom

    def x(self, value: float) -> float:
        """Return the pixels from the left for a value."""
        return self.size.left + min(max(self.across.share(value), 0.0), 1.0) * (self.right - self.size.left)

    def y(self, value: float) -> float:
        """Return the pixels from the top for a value."""
        return self.bottom - min(max(self.up.share(value), 0.0), 1.0) * (self.bottom - self.top)

    def axes(self) -> list[str]:
        """Grid, ticks as far as they keep apart, titles with units, and the legend."""
        left, parts, last = self.size.left, [], -math.inf
        for value, name in self.up.ticks:
            y = self.y(value)
            parts.append(f'<path class="grid" d="M{left} {y:.1f}H{self.right}"/>')
            parts.append(text(left - 8, y + 4, name, "tick", "end"))
        for value, name in self.across.ticks:
            x, half = self.x(value), width_of(name) / 2
            if x - half > last + 4:
                last = x + half
                parts.append(text(x, self.bottom + 18, name, "tick", "middle"))
        parts += [text(0, self.size.top - 21, self.up.title, "axis")] if self.up.title else []
        middle = (left + self.right) / 2
        parts += [text(middle, self.bottom + 38, self.across.title, "axis", "middle")] if self.across.title else []
        return [*parts, *self._legend()]

    def _legend(self) -> list[str]:
        parts = []
        for row, line in enumerate(legend_lines(self.names, self.size)):
            x, y = 6.0, self.size.top + row * (LINE + 3)
            for series, name in line:
                parts.append(f'<g class="series{series}">{marker(series, x, y - 4)}{text(x + 10, y, name, "name")}</g>')
                x += width_of(name) + 32
        return parts


def width_of(name: str) -> float:
    """Return the approximate width in pixels of a text in the charts' font size."""
    return len(name) * CHARACTER


def text(x: float, y: float, content: str, kind: str, anchor: str = "start") -> str:
    """Return a text of class `kind` with its base line at y."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{markup(content)}</text>'


def with_tooltip(shape: str, title: str) -> str:
    """Return the shape with a tooltip."""
    return f"<g><title>{markup(title)}</title>{shape}</g>"


def polyline(places: Sequence[tuple[float, float]], kind: str) -> str:
    """Return a line through the places, in pixels, of class `kind`."""
    return f'<path class="{kind}" d="M{" ".join(f"{x:.1f} {y:.1f}" for x, y in places)}"/>' if places else ""


def bar(kind: str, x: float, y: float, width: float, height: float) -> str:
    """Return a rectangle of class `kind` with its upper left corner at (x, y)."""
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{max(0.0, height):.1f}"/>'
    )


def square(x: float, y: float) -> str:
    """Return the sign of the baseline, with its centre at (x, y)."""
    return f'<path class="baseline" d="M{x - 8:.1f} {y - 8:.1f}h16v16h-16z"/>'


def ring(x: float, y: float) -> str:
    """Return the sign of the recommendation, with its centre at (x, y)."""
    return f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="9"/>'


def cross(x: float, y: float) -> str:
    """Return the sign for memory that ran out, with its centre at (x, y)."""
    return f'<path class="cross" d="M{x - 5:.1f} {y - 5:.1f}l10 10m0-10l-10 10"/>'


def marker(series: int, x: float, y: float, *, is_hollow: bool = False) -> str:
    """Return the marker of a series, by number, with its centre at (x, y)."""
    kind = "dot hollow" if is_hollow else "dot"
    return f'<path class="{kind}" transform="translate({x:.1f} {y:.1f})" d="{SHAPES[series]}"/>'


SHAPES = (  # circle, square, triangle, diamond, turned triangle, plus: distinguishable without colour
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z", "M-4-4h8v8h-8z", "M0-5.2L4.8 3.6H-4.8z",
    "M0-5.4L5.4 0 0 5.4-5.4 0z", "M0 5.2L4.8-3.6H-4.8z", "M-1.6-5h3.2v3.4H5v3.2H1.6V5h-3.2V1.6H-5v-3.2h3.4z",
)  # fmt: skip


def legend_lines(names: Sequence[str], size: Size) -> list[list[tuple[int, str]]]:
    """Return the names with the numbers of their series, broken into lines that fit."""
    lines: list[list[tuple[int, str]]] = []
    room = 0.0
    most = int(size.width / CHARACTER) - 6
    for series, name in enumerate(cropped(name, most) for name in names):
        need = width_of(name) + 32
        if not lines or need > room:
            lines.append([])
            room = size.width
        lines[-1].append((series, name))
        room -= need
    return lines
