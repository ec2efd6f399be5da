"""The base classes of knobs, and the circumstances that their values may depend on.

A knob is written in a file of its own and listed in `knobs/__init__.py`. No other code names a knob or its class (a
test keeps it), apart from `batch_size` and `gradient_accumulation_steps`, whose product is the global batch of a
`Config`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.core.notices import Notice
from autotune.core.records import Environment, Limit, TargetFacts, Value
from autotune.knobs.effects import MemoryEffect as MemoryEffect  # of every knob, with its base class
from autotune.knobs.effects import Reach as Reach
from autotune.knobs.influence import NEUTRAL, UNKNOWN, Influence
from autotune.knobs.observed import Observed
from autotune.knobs.plan import SHORT_CYCLE as SHORT_CYCLE
from autotune.knobs.plan import Plan as Plan
from autotune.knobs.wording import NOTHING, Framework, Wording

LEFT_ALONE = "auto"  # shown for a value that leaves the setting alone
NOT_DONE = "no"  # shown for a value that is off
DDP = "ddp"  # shown for ranks that share no weights
TACIT = (LEFT_ALONE, NOT_DONE, DDP)  # left out where space is short
BARE = ("yes", "passive")  # texts that mean nothing without the name of their knob
SWITCH_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """The circumstances that the domain of a knob may depend on."""

    facts: TargetFacts
    environment: Environment
    global_batch: int | None  # samples per optimizer step of one rank, if held
    limit: Limit | None = None  # what the user allows for this knob

    @property
    def most_samples(self) -> int | None:
        """The most samples of one optimizer step of a rank: the held global batch, or the dataset."""
        known = [bound for bound in (self.global_batch, self.facts.samples_of_a_rank) if bound is not None]
        return min(known) if known else None


def allowed(values: tuple[Value, ...], limit: Limit | None) -> tuple[Value, ...]:
    """Return `values` within the user's limit; values that the user lists count even if they are not among `values`."""
    if limit is None:
        return values
    if limit.values is not None:
        return limit.values
    low = limit.low if limit.low is not None else float("-inf")
    high = limit.high if limit.high is not None else float("inf")
    return tuple(value for value in values if isinstance(value, int) and low <= value <= high)


class Knob(ABC):
    """One setting of a training run that may be tuned; the base of every knob, as of `CountKnob` and `SwitchKnob`."""

    name: str
    alias: str  # the short name that command-line options accept, and the name of its own option
    option_help: str  # of that option: "Micro-batches: 8:512, or 16,32,64."
    label: str  # column title, at most 13 characters
    ordered: bool  # searched by position if true, as categories if not
    default: Value  # PyTorch's own
    memory: MemoryEffect
    numerics: bool = False  # changes the arithmetic: recommended only after its losses agreed with the default's
    needs_label: bool = False  # its values say nothing without its name
    on_request: bool = False  # searched only if user or target gives its values, or `--tune` names it
    counts_workers: bool = False  # its value is the number of processes that load
    only_computes: bool = False  # it changes only the device's computing: no gain if the device waits for data
    only_updates: bool = False  # it changes only the optimizer's update: no gain if that is short
    spares_faults: bool = False  # it changes only page faults of the host: no gain if these are rare
    of_ranks: bool = False  # it determines how ranks train together, which a shape run, of one process, does not show
    exchanges_first: bool = False  # the first backward pass must exchange gradients, also within an optimizer step
    compiles: bool = False  # it compiles the model, which a shape run cannot show
    reach: Reach = Reach.CODE
    former: tuple[Value, ...] = ()  # values of earlier versions, if they offered fewer
    # The words for its values in commands: by format, a word for each value that has one ("" is the default format),
    # and the names of placeholders that stand for one value, and are true or false (`{bf16:flag}`).
    formats: Mapping[str, Mapping[Value, str]] = {}
    value_names: Mapping[str, Value] = {}
    # Regular expressions for the names of a command's arguments, in lower case and with `_` for `-`: those that mean
    # this knob, and those that may mean it, which only the user's `--map` takes for it.
    arguments: str = ""
    doubtful: str = ""

    @property
    def is_truth(self) -> bool:
        """Whether commands write its values as true and false."""
        return set(self.formats.get("", ())) == {True, False}

    @abstractmethod
    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return the finite values to try here, in search order. Empty if the user's limit leaves none."""

    def derive(self, values: dict[str, Value], circumstances: Circumstances) -> Value | None:
        """Return the value that follows from the others, or None if this knob is free."""
        return None

    def size(self, value: Value) -> float:
        """Return what memory grows with; only asked where it grows."""
        return float(value or 0)

    def position(self, value: Value, circumstances: Circumstances) -> float:
        """Return the position of `value` in the order of an ordered knob."""
        return float(value or 0)

    def left_alone(self, facts: TargetFacts) -> Value:
        """Return the value that changes nothing here: that of the user's code or command today, else the default."""
        today = (facts.baseline or {}) if facts.is_program else {}
        return facts.found.get(self.name, today.get(self.name, self.default))

    def idle(self, values: Mapping[str, Value], circumstances: Circumstances) -> str:
        """Return why its value in `values` has no effect here with the other values; empty if it may have one.

        It completes a sentence: "does nothing here: ...". It is not called for the value that leaves things alone.
        """
        return ""

    def lacking(self, value: Value, circumstances: Circumstances) -> str:
        """Return what this machine or target lacks to train with `value` at all; empty: nothing is known to lack."""
        return ""

    def unoffered(self, environment: Environment) -> str:
        """Return why this machine offers no value of it that users expect; empty: it does, or none is expected."""
        return ""

    def offer(self, environment: Environment) -> Notice | None:
        """Return what `autotune doctor` says of the values that a machine offers; None: nothing."""
        return None

    def instead(self, value: Value, circumstances: Circumstances) -> Value:
        """Return the value that an idle `value` is equivalent to: by default the one that changes nothing."""
        return self.left_alone(circumstances.facts)

    def canonical(self, values: dict[str, Value], circumstances: Circumstances) -> Value:
        """Return the one value that stands for all values with exactly the same effect here.

        Two configurations with the same canonical form are one, and are probed once.
        """
        value = values[self.name]
        if value == self.left_alone(circumstances.facts) or not self.idle(values, circumstances):
            return value
        return self.instead(value, circumstances)

    def needs_no_less(self, value: Value, other: Value) -> bool:
        """Return whether `value` never needs less memory than `other`; called only if `memory` is SHRINKS."""
        return value == other

    def takes_no_longer(self, value: Value, other: Value) -> bool:
        """Return whether `value` surely takes no longer than `other`; called only for trades of time for memory."""
        return False

    @abstractmethod
    def check(self, value: Value) -> None:
        """Raise `ValueError` (rule and value) unless `value` can be applied at all."""

    def is_exact(self, facts: TargetFacts) -> bool:
        """Return whether all its values compute the same up to the order of rounding; `--exact` holds other knobs.

        The batches themselves may differ: with random augmentation or dropout another number of workers or micro-batch
        changes the random numbers (docs/notes/throughput.md 5).
        """
        return not self.numerics

    @abstractmethod
    def parse(self, text: str) -> Value:
        """Return the value that a person typed. Raises `ValueError`."""

    @abstractmethod
    def show(self, value: Value) -> str:
        """Return the value for a table, as short as possible."""

    @abstractmethod
    def phrase(self, value: Value) -> str:
        """Return the value for a sentence; empty for a value that needs no mention."""

    def caution(self, value: Value) -> float:
        """Return the risk and cost of `value`, 0 upwards: among equally fast values the lowest wins."""
        return 0.0

    def influence(self, value: Value) -> Influence:
        """Return the prior effect of `value` on time and memory. By default the effect is learned from probes."""
        return UNKNOWN if value != self.default else NEUTRAL

    def compiling_seconds(self, value: Value) -> float:
        """Return the guessed seconds that a first probe with `value` compiles or times algorithms."""
        return 0.0

    def computing_threads(self, value: Value, own: int) -> int | None:
        """Return the number of threads that compute on a CPU with `value`; `own` is torch's count; None: not set."""
        return None

    def environ(self, value: Value) -> dict[str, str]:
        """Return the environment variables that the training process needs before it starts."""
        return {}

    def environ_outside(self, value: Value) -> dict[str, str]:
        """Return the environment variables that set `value` for an unchanged program; empty: there are none."""
        return self.environ(value)

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Return the code that a user of `framework` writes for `value` on `device` ("cuda"), beyond the plan."""
        return NOTHING

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return the values that agree with the observed training; empty if it shows nothing of this knob."""
        return ()

    def found(self, observed: Observed) -> Value | None:
        """Return the value that the user's own code was seen to set while this knob left it alone; None: none.

        It is the user's value of today (`TargetFacts.found`).
        """
        return None

    @abstractmethod
    def apply(self, value: Value, plan: Plan) -> None:
        """Edit the plan. The only place where a knob may import torch."""


class CountKnob(Knob):
    """A knob whose values are whole numbers, searched by position; also None if `none_is` has a text for it."""

    ordered = True
    least: int = 1
    none_is: str = ""  # what a table shows for None; empty: None is no value

    def check(self, value: Value) -> None:
        """Raise `ValueError` unless `value` is a whole number of at least `least`, or None if that is a value."""
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
        """Return the value as shown in tables: its digits."""
        return self.none_is if value is None else str(value)

    def phrase(self, value: Value) -> str:
        """Return name and value, such as `batch_size 64`."""
        return f"{self.name} {value}"


class SwitchKnob(Knob):
    """A knob that is on or off, and off by default."""

    ordered = False
    default: Value = False
    formats: Mapping[str, Mapping[Value, str]] = {"": {True: "true", False: "false"}}
    shown: tuple[str, str] = (NOT_DONE, "yes")  # what a table shows for off and on
    words: str  # for on, in a sentence
    effect: Influence = UNKNOWN  # of on against off

    @abstractmethod
    def is_offered(self, circumstances: Circumstances) -> bool:
        """Return whether switching it on may gain speed or memory for this target on this machine."""

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return both values, or only False if it cannot gain."""
        offered: tuple[Value, ...] = (False, True) if self.is_offered(circumstances) else (False,)
        return allowed(offered, circumstances.limit)

    def check(self, value: Value) -> None:
        """Raise `ValueError` unless `value` is True or False."""
        if not isinstance(value, bool):
            raise ValueError(f"{self.name} must be true or false, got {value!r}")

    def parse(self, text: str) -> Value:
        """Return the truth value of `true`, `false` or another of `SWITCH_WORDS`. Raises `ValueError`."""
        if text.lower() not in SWITCH_WORDS:
            raise ValueError(f"{self.name} must be true or false, got {text!r}")
        return SWITCH_WORDS[text.lower()]

    def show(self, value: Value) -> str:
        """Return the value as shown in tables: one of `shown`."""
        return self.shown[bool(value)]

    def phrase(self, value: Value) -> str:
        """Return `words` if the switch is on; else empty."""
        return self.words if value else ""

    def influence(self, value: Value) -> Influence:
        """Return the prior of switching it on; off is the reference, and changes nothing."""
        return self.effect if value else NEUTRAL
