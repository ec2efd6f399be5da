"""Knobs of a large space, for simulations: those that people ask for, with priors, but nothing to apply.

Priors are such as knobs of these kinds would have; sources are docs/notes/throughput.md 4 and published tables
(compiling: 163 models +43 % on average; fused optimizers 0 to 20 %; scaled dot product attention 0 to 11 %; TF32 20 %
to three times; prefetching 0 to 13 %). Most values do nothing on most machines, which their priors do not say.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import autotune.knobs
from autotune.core.records import Value
from autotune.knobs.base import Circumstances, Knob, MemoryEffect, Plan
from autotune.knobs.influence import NEUTRAL, UNKNOWN, Factor, Influence

Condition = Mapping[str, tuple[Value, ...]]


@dataclass(eq=False)
class Simulated(Knob):
    """A knob with values and priors; where `only_with` does not hold, all its values are the first one."""

    name: str
    values: tuple[Value, ...]
    influences: Mapping[Value, Influence]
    only_with: Condition = field(default_factory=dict)
    memory: MemoryEffect = MemoryEffect.NONE
    ordered: bool = False
    compiles: bool = False

    def __post_init__(self) -> None:
        self.alias = self.label = self.name
        self.default: Value = self.values[0]

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return all values."""
        return self.values

    def canonical(self, values: dict[str, Value], circumstances: Circumstances) -> Value:
        """Return the first value where the others would do nothing."""
        acts = all(values[name] in needed for name, needed in self.only_with.items())
        return values[self.name] if acts else self.default

    def influence(self, value: Value) -> Influence:
        """Return the prior."""
        return NEUTRAL if value == self.default else self.influences[value]

    def check(self, value: Value) -> None:
        """Raise `ValueError` unless it is one of its values."""
        if value not in self.values:
            raise ValueError(f"{self.name} must be one of {self.values}, got {value!r}")

    def parse(self, text: str) -> Value:
        """Return the value that is shown as `text`."""
        return next(value for value in self.values if str(value) == text)

    def show(self, value: Value) -> str:
        """Return the value."""
        return str(value)

    def phrase(self, value: Value) -> str:
        """Return such as `tf32 high`."""
        return f"{self.name} {value}"

    def apply(self, value: Value, plan: Plan) -> None:
        """Do nothing: nothing is run."""


def _both(fixed: Factor, sample: Factor, **others: Any) -> Influence:
    return Influence(fixed_time=fixed, sample_time=sample, **others)


WITH_WORKERS: Condition = {"num_workers": (1, 2, 4, 8, 16)}
COMPILED = _both(Factor(0.75, 0.25), Factor(0.85, 0.2), fixed_memory=Factor(1.0, 0.1), sample_memory=Factor(0.9, 0.15))
REGIONAL = Influence(relative_to="default", fixed_time=Factor(1.05, 0.1), sample_time=Factor(1.03, 0.08),
                     fixed_memory=Factor(1.0, 0.03), sample_memory=Factor(1.03, 0.05))  # fmt: skip
GRAPHS = Influence(relative_to="default", fixed_time=Factor(0.75, 0.3), sample_time=Factor(1.0, 0.08),
                   fixed_memory=Factor(1.1, 0.1), sample_memory=Factor(1.05, 0.08))  # fmt: skip
MOST = Influence(relative_to="default", fixed_time=Factor(1.0, 0.05), sample_time=Factor(0.98, 0.05),
                 fixed_memory=Factor(1.0, 0.03), sample_memory=Factor(1.0, 0.03))  # fmt: skip
ATTENTION = _both(Factor(1.0, 0.03), Factor(1.0, 0.08), sample_memory=Factor(1.0, 0.05))
TF32 = _both(Factor(1.0, 0.03), Factor(0.7, 0.35))
COPIES = _both(Factor(1.0, 0.03), Factor(0.98, 0.03))
FUSED = _both(Factor(0.93, 0.08), Factor(1.0, 0.02))
BENCHMARK = _both(Factor(1.0, 0.05), Factor(0.97, 0.08), fixed_memory=Factor(1.02, 0.04))
AHEAD = Influence(loading_time=Factor(0.97, 0.06))
KEPT = Influence(loading_time=Factor(1.0, 0.02))
MALLOC = _both(Factor(0.99, 0.04), Factor(1.0, 0.02), loading_time=Factor(0.97, 0.06))
EXPANDABLE = Influence(fixed_memory=Factor(0.97, 0.03), sample_memory=Factor(0.99, 0.02))
RECOMPUTING = _both(Factor(1.08, 0.05), Factor(1.1, 0.06), sample_memory=Factor(0.75, 0.15))

LARGE: tuple[Simulated, ...] = (
    Simulated("sim_tf32", (None, "high"), {"high": TF32}, {"amp_dtype": (None,)}),
    Simulated("sim_compile", (None, "default", "regional", "reduce-overhead", "max-autotune-no-cudagraphs"),
              {"default": COMPILED, "regional": REGIONAL, "reduce-overhead": GRAPHS,
               "max-autotune-no-cudagraphs": MOST}, memory=MemoryEffect.CHANGES, compiles=True),
    Simulated("sim_sdpa", ("auto", "cudnn", "flash", "efficient"),
              dict.fromkeys(("cudnn", "flash", "efficient"), ATTENTION), memory=MemoryEffect.CHANGES),
    Simulated("sim_pin_memory", (False, True), {True: COPIES}),
    Simulated("sim_fused", (False, True), {True: FUSED}),
    Simulated("sim_cudnn_benchmark", (False, True), {True: BENCHMARK}, memory=MemoryEffect.CHANGES),
    Simulated("sim_prefetch", (2, 4, 8), dict.fromkeys((4, 8), AHEAD), WITH_WORKERS, MemoryEffect.GROWS_HOST, True),
)  # fmt: skip
HUGE: tuple[Simulated, ...] = (
    *LARGE,
    Simulated("sim_persistent", (False, True), {True: KEPT}, WITH_WORKERS),
    Simulated("sim_malloc", ("glibc", "jemalloc", "tcmalloc"), dict.fromkeys(("jemalloc", "tcmalloc"), MALLOC)),
    Simulated("sim_allocator", ("default", "expandable"), {"expandable": EXPANDABLE}, memory=MemoryEffect.CHANGES),
    Simulated("sim_recompute", ("none", "third", "half", "full"), dict.fromkeys(("third", "half", "full"), RECOMPUTING),
              memory=MemoryEffect.CHANGES, ordered=True),
    Simulated("sim_declared", ("one", "two", "three"), dict.fromkeys(("two", "three"), UNKNOWN),
              memory=MemoryEffect.CHANGES),
)  # fmt: skip


def register(knobs: tuple[Simulated, ...]) -> None:
    """Let the product know these knobs, in this process."""
    before = autotune.knobs.KNOBS
    found = (*before, *knobs)
    for module in list(sys.modules.values()):
        if getattr(module, "KNOBS", None) is before:
            module.KNOBS = found  # type: ignore[attr-defined]
