"""What a knob is, and the plan: the complete list of places where a knob may touch a training run.

A knob is a value with behaviour, written once in a file of its own and listed once in `knobs/__init__.py`.
Nothing else in the house knows a knob by name, apart from `batch_size` and `gradient_accumulation_steps`, whose
product is the global batch that `Config` can tell.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from autotune.knobs.influence import NEUTRAL, UNKNOWN, Influence
from autotune.knobs.wording import NOTHING, Framework, Wording
from autotune.records import Environment, Limit, TargetFacts, Value

LEFT_ALONE = "auto"  # what a knob shows for a value that sets nothing
NOT_DONE = "no"  # and for one that does nothing
TACIT = (LEFT_ALONE, NOT_DONE)  # left out where space is short
SWITCH_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class MemoryEffect(StrEnum):
    """How a knob moves memory; the guard draws its conclusions from an out-of-memory only along these lines."""

    GROWS = "grows"  # a larger value never needs less, on the device and on the host
    GROWS_HOST = "grows-host"  # the same, on the host only; the device does not notice
    CHANGES = "changes"  # another value is another arm: nothing is concluded across
    NONE = "none"


@dataclass(kw_only=True)
class Plan:
    """How one training run is to be set up. Lives in the child only; knobs edit it in the order of the registry."""

    device: str
    setup: list[Callable[[], None]] = field(default_factory=list)  # process-wide switches, before the model exists
    model_transforms: list[Callable[[Any], Any]] = field(default_factory=list)  # after the model is on the device
    batch_transforms: list[Callable[[Any], Any]] = field(default_factory=list)  # on each tensor, on the device
    forward_contexts: list[Callable[[], AbstractContextManager[Any]]] = field(default_factory=list)  # forward and loss
    loader_options: dict[str, Any] = field(default_factory=dict)  # keyword arguments of the DataLoader
    accumulation_steps: int = 1
    scale_loss: bool = False  # float16 needs a gradient scaler

    @property
    def workers(self) -> int:
        """Processes that load."""
        return int(self.loader_options["num_workers"])


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """All that a domain may depend on."""

    facts: TargetFacts
    environment: Environment
    global_batch: int | None  # samples per optimizer step, if held
    limit: Limit | None = None  # what the user allows this knob

    @property
    def most_samples(self) -> int | None:
        """The most samples that one optimizer step may take: the held global batch, or all of the dataset."""
        known = [bound for bound in (self.global_batch, self.facts.dataset_samples) if bound is not None]
        return min(known) if known else None


def allowed(values: tuple[Value, ...], limit: Limit | None) -> tuple[Value, ...]:
    """`values` within the user's limit; explicitly listed values count even where they were not offered."""
    if limit is None:
        return values
    if limit.values is not None:
        return limit.values
    low = limit.low if limit.low is not None else float("-inf")
    high = limit.high if limit.high is not None else float("inf")
    return tuple(value for value in values if isinstance(value, int) and low <= value <= high)


class Knob(ABC):
    """One setting of a training run that may be tuned; the base of every knob, see also `CountKnob` and `SwitchKnob`.

    `domain` is a finite tuple in search order; `default` is what PyTorch does when nobody says anything.
    """

    name: str
    alias: str  # the short name that command-line options accept, and the name of its own option
    option_help: str  # of that option: "Micro-batches: 8:512, or 16,32,64."
    label: str  # column title, at most 9 characters
    ordered: bool  # searched by rank if true, as categories if not
    default: Value
    memory: MemoryEffect
    numerics: bool = False  # changes the arithmetic: recommended only after paired losses agreed with the default's
    counts_workers: bool = False  # its value is the number of processes that load

    @abstractmethod
    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """The values worth trying here, ordered; at least one. Raises `UsageError` if the user's limit leaves none."""

    def derive(self, values: dict[str, Value], circumstances: Circumstances) -> Value | None:
        """The value that follows from the others, or None if this knob is free."""
        return None

    def rank(self, value: Value, circumstances: Circumstances) -> float:
        """Where `value` stands in the order of an ordered knob."""
        return float(value or 0)

    def canonical(self, values: dict[str, Value], circumstances: Circumstances) -> Value:
        """What to write for this knob's value among `values`: another value that does exactly the same here, or itself.

        Two configurations with one canonical form are one, and are probed once.
        """
        return values[self.name]

    @abstractmethod
    def check(self, value: Value) -> None:
        """Raise `ValueError` (rule and value) unless `value` can be applied at all."""

    def is_exact(self, facts: TargetFacts) -> bool:
        """Whether all its values compute the same, up to the order of rounding; `--exact` keeps the other knobs still.

        The same batches in the same order are not asked for: where samples are augmented at random or dropped out,
        another number of workers or another micro-batch draws other random numbers (theory note 6).
        """
        return not self.numerics

    @abstractmethod
    def parse(self, text: str) -> Value:
        """The value that a person typed. Raises `ValueError`."""

    @abstractmethod
    def show(self, value: Value) -> str:
        """The value in a table, as short as can be."""

    @abstractmethod
    def phrase(self, value: Value) -> str:
        """The value in a sentence, or an empty string where it is not worth a word."""

    def caution(self, value: Value) -> float:
        """How far `value` is from safe and cheap, 0 upwards: among equals in speed the lowest wins."""
        return 0.0

    def influence(self, value: Value) -> Influence:
        """What `value` probably multiplies, for the sampler that models a step. A knob that does not say is learned."""
        return UNKNOWN if value != self.default else NEUTRAL

    def computing_threads(self, value: Value, own: int) -> int | None:
        """How many threads compute on a CPU with `value`, where torch by itself takes `own`; None: no say in it."""
        return None

    def environ(self, value: Value) -> dict[str, str]:
        """Environment variables that the training process must have before it starts; most knobs have none."""
        return {}

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """What a user of `framework` writes for `value` on `device` ("cuda"), beyond what the plan holds."""
        return NOTHING

    @abstractmethod
    def apply(self, value: Value, plan: Plan) -> None:
        """Edit the plan. The only place where a knob may import torch."""


class CountKnob(Knob):
    """A knob whose values are whole numbers, searched by rank; None too where `none_is` says what it stands for."""

    ordered = True
    least: int = 1
    none_is: str = ""  # what a table shows for None; empty: None is no value

    def check(self, value: Value) -> None:
        """Raise `ValueError` unless `value` is a whole number of at least `least`, or None where that is a value."""
        if value is None and self.none_is:
            return
        if not isinstance(value, int) or isinstance(value, bool) or value < self.least:
            raise ValueError(f"{self.name} must be a whole number of at least {self.least}, got {value!r}")

    def parse(self, text: str) -> Value:
        """Return the number, or None for `none` where that is a value."""
        if self.none_is and text.lower() in ("none", self.none_is):
            return None
        try:
            count = int(text)
        except ValueError:
            raise ValueError(f"{self.name} must be a whole number, got {text!r}") from None
        self.check(count)
        return count

    def show(self, value: Value) -> str:
        """Return the digits."""
        return self.none_is if value is None else str(value)

    def phrase(self, value: Value) -> str:
        """Return such as `batch_size 64`."""
        return f"{self.name} {value}"


class SwitchKnob(Knob):
    """A knob that is on or off, and off by default."""

    ordered = False
    default: Value = False
    shown: tuple[str, str] = (NOT_DONE, "yes")  # what a table shows for off and on
    words: str  # for on, in a sentence
    effect: Influence = UNKNOWN  # of on against off

    @abstractmethod
    def is_offered(self, facts: TargetFacts) -> bool:
        """Return whether switching it on can gain anything for this target."""

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return both values, or only False where it cannot gain."""
        offered: tuple[Value, ...] = (False, True) if self.is_offered(circumstances.facts) else (False,)
        return allowed(offered, circumstances.limit)

    def check(self, value: Value) -> None:
        """Raise `ValueError` unless `value` is True or False."""
        if not isinstance(value, bool):
            raise ValueError(f"{self.name} must be true or false, got {value!r}")

    def parse(self, text: str) -> Value:
        """Return what `true` or `false`, or another of `SWITCH_WORDS`, stands for."""
        if text.lower() not in SWITCH_WORDS:
            raise ValueError(f"{self.name} must be true or false, got {text!r}")
        return SWITCH_WORDS[text.lower()]

    def show(self, value: Value) -> str:
        """Return one of `shown`."""
        return self.shown[bool(value)]

    def phrase(self, value: Value) -> str:
        """Return `words`, or nothing."""
        return self.words if value else ""

    def influence(self, value: Value) -> Influence:
        """Return `effect`, or nothing."""
        return self.effect if value else NEUTRAL
