"""The configurations of a space, counted and reached one by one without a list of them all.

Two knobs share a block if one depends on the other (a derived value, a setting that means nothing without workers). The
points of every block are listed, and the configurations are all combinations of points: a million of them are a few
dozen points in a dozen blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from autotune.core.records import Config, Value
from autotune.knobs.changes import BATCH_KNOBS

Points = NDArray[np.int64]  # (configurations, blocks): which point of each block
Values = tuple[Value, ...]


class Watched(dict[str, Value]):
    """A dict with the values of all knobs, which notes the names of the values that are read."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        super().__init__(values)
        self.seen: set[str] = set()

    def __getitem__(self, name: str) -> Value:
        self.seen.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value, and note its name."""
        self.seen.add(name)
        return super().get(name, default)

    def __iter__(self) -> Iterator[str]:
        self.seen.update(super().keys())  # code that reads all of them may depend on any
        return super().__iter__()

    def keys(self) -> Any:
        """Return the names of all knobs, and note them all."""
        self.seen.update(super().keys())
        return super().keys()

    def values(self) -> Any:
        """Return the values of all knobs, and note all names."""
        self.seen.update(super().keys())
        return super().values()

    def items(self) -> Any:
        """Return all pairs of name and value, and note all names."""
        self.seen.update(super().keys())
        return super().items()


@dataclass(frozen=True)
class Block:
    """Knobs that depend on one another, with the combinations of values that they may have."""

    names: tuple[str, ...]
    points: tuple[Values, ...]

    @cached_property
    def places(self) -> dict[Values, int]:
        """The index of every point in `points`."""
        return {point: place for place, point in enumerate(self.points)}

    @cached_property
    def _axes(self) -> Points:
        """Return per point and change a number that tells values apart; micro-batch and accumulation are one change."""
        together = [at for at, name in enumerate(self.names) if name in BATCH_KNOBS]
        alone = [[at] for at in range(len(self.names)) if at not in together]
        columns = []
        for axis in filter(None, (together, *alone)):
            numbers: dict[Values, int] = {}
            picked = [tuple(point[at] for at in axis) for point in self.points]
            columns.append([numbers.setdefault(values, len(numbers)) for values in picked])
        return np.array(columns, np.int64).T

    @cached_property
    def _known(self) -> dict[tuple[int, int], Points]:
        return {}

    def away(self, place: int, changes: int) -> Points:
        """Return the places of the points that differ from the one at `place` by exactly `changes` changes."""
        if (place, changes) not in self._known:
            distances = (self._axes != self._axes[place]).sum(1)
            self._known[place, changes] = np.flatnonzero(distances == changes)
        return self._known[place, changes]


class Configurations(Sequence[Config]):
    """All combinations of the points of some blocks, in a fixed order. Only iterating makes them all."""

    def __init__(self, blocks: Sequence[Block], names: Sequence[str]) -> None:
        """`names`: of all knobs, in the order of the registry."""
        self.blocks = tuple(blocks)
        self._sizes = tuple(len(block.points) for block in self.blocks)
        self._names = tuple(names)
        where = {name: at for at, name in enumerate(name for block in self.blocks for name in block.names)}
        self._order = [where[name] for name in self._names]

    def __len__(self) -> int:
        return math.prod(self._sizes)

    def __contains__(self, config: object) -> bool:
        return isinstance(config, Config) and self.point(config) is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configurations) and self.blocks == other.blocks

    def __hash__(self) -> int:
        return hash(self.blocks)

    def __iter__(self) -> Iterator[Config]:
        return map(self._made, product(*(block.points for block in self.blocks)))

    @overload
    def __getitem__(self, number: int) -> Config: ...
    @overload
    def __getitem__(self, number: slice) -> tuple[Config, ...]: ...
    def __getitem__(self, number: int | slice) -> Config | tuple[Config, ...]:
        if isinstance(number, slice):
            return tuple(self[one] for one in range(*number.indices(len(self))))
        rest, places = range(len(self))[number], []
        for size in reversed(self._sizes):
            rest, place = divmod(rest, size)
            places.append(place)
        return self.at(places[::-1])

    def at(self, point: Sequence[int]) -> Config:
        """Return the configuration with these points of the blocks."""
        return self._made([block.points[place] for block, place in zip(self.blocks, point, strict=True)])

    def point(self, config: Config) -> tuple[int, ...] | None:
        """Return the point of each block that makes up `config`; None if it is not one of these configurations."""
        values = config.values
        found = [block.places.get(tuple(values.get(name) for name in block.names)) for block in self.blocks]
        return None if None in found else tuple(place for place in found if place is not None)

    def values(self, name: str) -> Values:
        """Return the values of one knob that some configuration has."""
        block = next(block for block in self.blocks if name in block.names)
        return tuple(dict.fromkeys(point[block.names.index(name)] for point in block.points))

    def combinations(self, names: Sequence[str]) -> tuple[dict[str, Value], ...]:
        """Return every combination of values that these knobs have in some configuration."""
        parts = []
        for block in self.blocks:
            own = [at for at, name in enumerate(block.names) if name in names]
            picked = dict.fromkeys(tuple((block.names[at], point[at]) for at in own) for point in block.points)
            parts.append(list(picked))
        return tuple({name: value for part in chosen for name, value in part} for chosen in product(*parts))

    def codes(self, points: Points, places: Mapping[str, Mapping[Value, int]]) -> dict[str, Points]:
        """Return for these points the place of each knob's value, by the knob's name; `places` numbers the values."""
        found = {}
        for at, block in enumerate(self.blocks):
            for column, name in enumerate(block.names):
                if name in places:
                    table = np.array([places[name][point[column]] for point in block.points], np.int64)
                    found[name] = table[points[:, at]]
        return found

    def sample(self, listed: int, most: int) -> Points:
        """Return all configurations if they are at most `listed`, else up to `most` random ones, the same each time."""
        if len(self) <= listed:
            return np.indices(self._sizes).reshape(len(self._sizes), -1).T.astype(np.int64)
        chance = np.random.default_rng(0)
        return distinct(np.stack([chance.integers(0, size, most) for size in self._sizes], axis=1))

    def near(self, point: Sequence[int], changes: int = 1) -> Points:
        """Return the configurations that differ from this one in at most `changes` changes: 1 or 2."""
        own = [(at, *pair) for at, pair in enumerate(zip(self.blocks, point, strict=True)) if self._sizes[at] > 1]
        steps = [(at, block.away(place, 1)) for at, block, place in own]
        found: list[tuple[tuple[int, Points], ...]] = [((at, places),) for at, places in steps]
        if changes > 1:
            found += [((at, block.away(place, 2)),) for at, block, place in own]
            found += [
                ((at, np.repeat(places, len(theirs))), (other, np.tile(theirs, len(places))))
                for number, (at, places) in enumerate(steps)
                for other, theirs in steps[:number]
            ]
        rows = np.tile(np.array(point, np.int64), (sum(len(changed[0][1]) for changed in found), 1))
        start = 0
        for changed in found:
            for at, places in changed:
                rows[start : start + len(places), at] = places
            start += len(changed[0][1])
        return rows

    def _made(self, points: Sequence[Values]) -> Config:
        flat = [value for point in points for value in point]
        return Config(values={name: flat[at] for name, at in zip(self._names, self._order, strict=True)})


def split(
    names: Sequence[str], points_of: Callable[[Sequence[str]], tuple[tuple[Values, ...], set[str]]]
) -> tuple[Block, ...]:
    """Return the smallest blocks of these knobs such that each knob depends on knobs of its own block only.

    `points_of` returns the points of a block of the given knobs, and the names of the knobs that these depend on.
    """
    blocks: list[tuple[str, ...]] = [(name,) for name in names]
    found: list[Block] = []
    while blocks:
        block = blocks.pop(0)
        points, seen = points_of(block)
        if seen <= set(block):
            found.append(Block(block, points))
            continue
        joined = [other for other in (*blocks, *(one.names for one in found)) if seen & set(other)]
        blocks = [other for other in blocks if other not in joined]
        found = [one for one in found if one.names not in joined]
        everything = {*block, *(name for other in joined for name in other)}
        blocks.insert(0, tuple(name for name in names if name in everything))
    return tuple(sorted(found, key=lambda block: names.index(block.names[0])))


def distinct(points: Points) -> Points:
    """Return each of the points once, in the order of first occurrence."""
    _, first = np.unique(points, axis=0, return_index=True)
    found: Points = points[np.sort(first)]
    return found
