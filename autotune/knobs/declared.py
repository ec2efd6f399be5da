"""The knobs that a user declares, and the registry that holds them together with ours for the study at hand.

    space = {"attn": ["sdpa", "flash"]}         handed by name to model(attn), dataset(attn), ..., or to {attn}
    space = {"attn": {"values": ["sdpa", "flash"], "changes_arithmetic": True, "memory": "none", "ordered": False}}

A declared knob is one of its study: `KNOBS` has it from `declare` on, in this context only (decisions/0062).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, overload

from autotune.core.records import Declaration, Value
from autotune.knobs.base import SWITCH_WORDS, Circumstances, Knob, MemoryEffect, Plan, allowed
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.wording import Framework, Wording

OPTIONS = ("values", "changes_arithmetic", "memory", "ordered")  # keys of a declaration in full
MEMORY = ("grows", "changes", "none")
# Names that autotune itself gives to functions of a target, or reads from it.
TAKEN = (
    "device", "knobs", "model", "batch", "params", "samples", "dataset", "optimizer", "optimizers", "loader",
    "output_dir",
)  # fmt: skip
# Similarity (difflib's ratio) from which one name is taken for a mistyped other: num_worker and num_workers have 0.95,
# while dali_threads and threads, or num_heads and num_threads, which are not, have 0.74 and 0.90.
MISTYPED_RATIO = 0.92
# A user who declares a knob wants it to be tried, so the prior is twice as wide as for a knob of ours without a prior.
# Memory is often unchanged. A judgement.
DECLARED = Influence(
    fixed_time=Factor(1.0, 0.5),
    sample_time=Factor(1.0, 0.5),
    fixed_memory=Factor(1.0, 0.1),
    sample_memory=Factor(1.0, 0.1),
    loading_time=Factor(1.0, 0.5),
)


def declaration(name: str, written: Any) -> Declaration:
    """Return the declaration that a user wrote for a knob: a list of values, or a mapping with OPTIONS.

    Raises `ValueError` (rule and value).
    """
    if not name.isidentifier():
        raise ValueError(f"a knob of your own is handed over by its name, and {name!r} cannot name an argument")
    if name in TAKEN:
        raise ValueError(f"{name!r} is a name that autotune hands to functions itself: call your knob otherwise")
    options: dict[str, Any] = dict(written) if isinstance(written, Mapping) else {"values": written}
    for key in options:
        if key not in OPTIONS:
            near = difflib.get_close_matches(str(key), OPTIONS, n=1)
            hint = f", probably meant as {near[0]!r}" if near else ""
            raise ValueError(f"{name} has the unknown key {key!r}{hint}. It may have {', '.join(OPTIONS)}")
    values = _values(name, options.get("values", ()))
    for key in ("changes_arithmetic", "ordered"):
        if options.get(key) not in (True, False, None):
            raise ValueError(f"{key} of {name} must be True, False or left out, got {options[key]!r}")
    memory = options.get("memory", "changes")
    if memory not in MEMORY:
        raise ValueError(f"memory of {name} must be one of {', '.join(MEMORY)}, got {memory!r}")
    is_numeric, ordered = are_numbers(values), options.get("ordered")
    if memory == "grows" and not (is_numeric if ordered is None else ordered):
        raise ValueError(
            f'memory of {name} grows with its order, and it has none: add "ordered": True, or say "changes"'
        )
    return Declaration(
        name=name, values=values, default=values[0], changes_arithmetic=options.get("changes_arithmetic"),
        memory=memory, ordered=is_numeric if ordered is None else ordered,
    )  # fmt: skip


def _values(name: str, written: Any) -> tuple[Value, ...]:
    if isinstance(written, set | frozenset):
        raise ValueError(
            f"{name} has a set of values, of which none is the first, and the first one is what you train with today. "
            f"Write a list"
        )
    listed = tuple(map(json_value, written if isinstance(written, list | tuple | range) else (written,)))
    for value in listed:
        is_number = isinstance(value, float) and not math.isfinite(value)
        if is_number or not (value is None or isinstance(value, bool | int | float | str)):
            raise ValueError(
                f"{name} has the value {value!r}, and values travel to processes as JSON. Use texts, finite numbers, "
                f"True, False and None, and look up what they stand for in your function"
            )
    if not listed:
        raise ValueError(f"{name} has no value: list at least one")
    if len(set(listed)) < len(listed) or len(set(map(text, listed))) < len(listed):
        raise ValueError(f"{name} has the same value twice: {', '.join(map(text, listed))}")
    return listed


def json_value(value: Any) -> Any:
    """Return a value of JSON's own type for one of a subclass, such as the numbers of `numpy.linspace`."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    return str.__str__(value) if isinstance(value, str) else value


def are_numbers(values: Sequence[Value]) -> bool:
    """Return whether all of them are numbers; True and False are none."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def is_mistyped(name: str, ours: Collection[str]) -> bool:
    """Return whether `name` is probably a mistyped name of one of our knobs."""
    return bool(difflib.get_close_matches(name, ours, n=1, cutoff=MISTYPED_RATIO))


def text(value: Value) -> str:
    """Return the value as a person types it: `flash`, `0.5`, `true`, `none`."""
    return {"True": "true", "False": "false", "None": "none"}.get(str(value), str(value))


def scalar(typed: str) -> Value:
    """Return the value that a person typed, if no list of values is known."""
    if typed.lower() in ("none", "null"):
        return None
    if typed.lower() in ("true", "false"):
        return SWITCH_WORDS[typed.lower()]
    for kind in (int, float):
        try:
            number = kind(typed)
        except ValueError:
            continue
        if math.isfinite(number):
            return number
    return typed


class DeclaredKnob(Knob):
    """A knob of a user's own, known only by its declaration. It edits no plan: functions get its values by name."""

    option_help = "A knob of the target."
    needs_label = True

    def __init__(self, declared: Declaration) -> None:
        self.declared = declared
        self.name = self.alias = self.label = declared.name
        self.ordered, self.default = declared.ordered, declared.default
        self.memory = MemoryEffect(declared.memory)
        self.numerics = declared.changes_arithmetic is not False
        self._by_size = declared.ordered and are_numbers(declared.values)
        self.values = tuple(sorted(declared.values, key=float)) if self._by_size else declared.values  # type: ignore[arg-type]  # numbers
        if declared.values and all(isinstance(value, bool) for value in declared.values):
            self.formats = {"": {True: "true", False: "false"}}

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return the declared values, or those of them that the user asks for."""
        return allowed(self.values, circumstances.limit)

    def position(self, value: Value, circumstances: Circumstances) -> float:
        """Return the number itself, or the place in the list."""
        return self.size(value)

    def size(self, value: Value) -> float:
        """Return the position: memory grows with it."""
        if self._by_size:
            return float(value or 0)
        return float(self.values.index(value)) if value in self.values else -1.0

    def check(self, value: Value) -> None:
        """Raise `ValueError` unless it is one of the declared values; any value is accepted if none are declared."""
        if self.values and repr(value) not in map(repr, self.values):
            raise ValueError(f"{self.name} must be one of {', '.join(map(text, self.values))}, got {value!r}")

    def parse(self, typed: str) -> Value:
        """Return the declared value that is written as `typed`. Raises `ValueError`."""
        known = {text(value): value for value in self.values}
        if typed not in known and self.values:
            raise ValueError(f"{self.name} must be one of {', '.join(known)}, got {typed!r}")
        return known[typed] if typed in known else scalar(typed)

    def show(self, value: Value) -> str:
        """Return the value as it is typed."""
        return text(value)

    def phrase(self, value: Value) -> str:
        """Return label and value, such as `attn flash`."""
        return f"{self.name} {text(value)}"

    def influence(self, value: Value) -> Influence:
        """Return a wide prior: the effect is learned from probes."""
        return NEUTRAL if value == self.default else DECLARED

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Return the variable that the user passes on."""
        takers = ", ".join(f"{taker}({self.name}={self.name})" for taker in self.declared.takers)
        return Wording(setup=(f"{self.name} = {value!r}  # yours{': ' if takers else ''}{takers}",))

    def apply(self, value: Value, plan: Plan) -> None:
        """Do nothing: functions with an argument of its name get the value."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeclaredKnob) and self.declared == other.declared

    def __hash__(self) -> int:
        return hash(self.declared)


class Registry(Sequence[Knob]):
    """Our knobs, followed by those that were declared in this context."""

    def __init__(self, ours: tuple[Knob, ...]) -> None:
        self.ours = ours

    def __iter__(self) -> Iterator[Knob]:
        return iter((*self.ours, *_declared.get()))

    def __len__(self) -> int:
        return len(self.ours) + len(_declared.get())

    @overload
    def __getitem__(self, place: int) -> Knob: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Knob]: ...

    def __getitem__(self, place: int | slice) -> Knob | Sequence[Knob]:
        return (*self.ours, *_declared.get())[place]


_declared: ContextVar[tuple[DeclaredKnob, ...]] = ContextVar("declared", default=())


def declare(*declarations: Declaration) -> None:
    """Make these the declared knobs of this context, in place of others. If names repeat, the first counts."""
    by_name = {one.name: one for one in reversed(declarations)}
    _declared.set(tuple(DeclaredKnob(by_name[name]) for name in dict.fromkeys(one.name for one in declarations)))


@contextmanager
def declaring(*declarations: Declaration) -> Iterator[None]:
    """Make these knobs part of `KNOBS` until the end."""
    before = _declared.get()
    declare(*declarations)
    try:
        yield
    finally:
        _declared.set(before)
