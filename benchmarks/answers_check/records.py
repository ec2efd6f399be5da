"""What is known of one target's answers, kept between calls: its searches, and what plain loops showed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from msgspec import field

from autotune.core import codec
from autotune.core.records import PROTOCOL_VERSION, Record, Value
from autotune.knobs import defaults

Died = str  # of what


class Search(Record, frozen=True, kw_only=True):
    """One run of `autotune search`, whatever came of it."""

    number: int  # from 1; 0: beside the load
    seconds: float  # of wall time, the whole command
    failure: str = ""  # what it said last; empty: it has an answer
    values: dict[str, Value] = field(default_factory=dict)  # recommended; empty: it failed
    baseline: dict[str, Value] = field(default_factory=dict)
    others: tuple[dict[str, Value], ...] = ()  # that it confirmed and did not recommend, the fastest first
    refused: tuple[dict[str, Value], ...] = ()  # arithmetic that its paired losses exclude
    undecided: str = ""  # the headline, where it says so
    speedup: float | None = None  # that it promises
    probes: int = 0
    busy: float = 0.0  # share of all cores that others used just before
    commit: str = ""
    finished_at: str  # UTC, ISO 8601

    @property
    def beside_load(self) -> bool:
        """Whether a load was planted."""
        return self.number == 0


class Round(Record, frozen=True, kw_only=True):
    """Plain loops of several configurations, one after the other: samples/s by `key`, or of what it died."""

    rates: dict[str, float | Died]
    busy: float = 0.0  # share of all cores that others used just before


class Answers(Record, frozen=True, kw_only=True):
    """All that was run for one target with one time budget."""

    protocol: int = PROTOCOL_VERSION
    target: str
    budget_seconds: float
    machine: str
    searches: tuple[Search, ...] = ()
    screened: dict[str, float | Died] = field(default_factory=dict)  # by `key`; one short loop each
    rounds: tuple[Round, ...] = ()

    @property
    def quiet(self) -> tuple[Search, ...]:
        """Searches without a load, by number."""
        return tuple(one for one in self.searches if not one.beside_load)

    @property
    def loaded(self) -> Search | None:
        """The search beside the load."""
        return next((one for one in self.searches if one.beside_load), None)

    @property
    def answered(self) -> tuple[str, ...]:
        """Distinct quiet answers, the most frequent first, by `key`."""
        counts = Counter(key(one.values) for one in self.quiet if one.values)
        return tuple(text for text, _ in counts.most_common())

    @property
    def baseline(self) -> dict[str, Value]:
        """What the searches started from; empty where all failed."""
        return next((one.baseline for one in self.searches if one.baseline), {})


def key(values: Mapping[str, Value]) -> str:
    """A configuration as text: its micro-batch and what is not PyTorch's default, so that new knobs change no key."""
    usual = defaults()
    said = {name: value for name, value in values.items() if name == "batch_size" or value != usual.get(name)}
    return json.dumps(said, sort_keys=True)


def values_of(text: str) -> dict[str, Value]:
    """The configuration of a key, complete."""
    return {**defaults(), **json.loads(text)}


def stored(folder: Path, target: str) -> Path:
    """Where the answers of a target lie."""
    return folder / f"{target}.json"


def known(folder: Path, target: str) -> Answers | None:
    """What earlier calls left."""
    path = stored(folder, target)
    return codec.read(path, Answers) if path.is_file() else None


def keep(folder: Path, answers: Answers) -> None:
    """Leave it for later calls."""
    folder.mkdir(parents=True, exist_ok=True)
    codec.write(stored(folder, answers.target), answers)
