"""The registry of knobs. Order is the order of columns, of keys in the dict, and of application to a plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autotune.core.records import Config, Value
from autotune.knobs.activation_checkpointing import ActivationCheckpointing
from autotune.knobs.activation_memory_budget import ActivationMemoryBudget
from autotune.knobs.allocator import Allocator
from autotune.knobs.amp_dtype import AmpDtype
from autotune.knobs.base import Knob, Plan
from autotune.knobs.batch_size import BatchSize
from autotune.knobs.bucket_cap_mb import BucketCapMb
from autotune.knobs.channels_last import ChannelsLast
from autotune.knobs.compile_mode import CompileMode
from autotune.knobs.cudnn_benchmark import CudnnBenchmark
from autotune.knobs.declared import DeclaredKnob, Registry
from autotune.knobs.fused_optimizer import FusedOptimizer
from autotune.knobs.gradient_accumulation_steps import GradientAccumulationSteps
from autotune.knobs.gradient_as_bucket_view import GradientAsBucketView
from autotune.knobs.malloc import Malloc
from autotune.knobs.num_threads import NumThreads
from autotune.knobs.num_workers import NumWorkers
from autotune.knobs.observed import Observed
from autotune.knobs.omp_wait_policy import OmpWaitPolicy
from autotune.knobs.persistent_workers import PersistentWorkers
from autotune.knobs.pin_memory import PinMemory
from autotune.knobs.prefetch_factor import PrefetchFactor
from autotune.knobs.sdpa_backend import SdpaBackend
from autotune.knobs.static_graph import StaticGraph
from autotune.knobs.strategy import Strategy
from autotune.knobs.tf32 import Tf32

OURS: tuple[Knob, ...] = (
    BatchSize(),
    GradientAccumulationSteps(),
    AmpDtype(),
    NumWorkers(),
    ChannelsLast(),
    ActivationCheckpointing(),
    CompileMode(),
    ActivationMemoryBudget(),
    NumThreads(),
    OmpWaitPolicy(),
    FusedOptimizer(),
    Tf32(),
    CudnnBenchmark(),
    SdpaBackend(),
    PrefetchFactor(),
    PersistentWorkers(),
    PinMemory(),
    Allocator(),
    Malloc(),
    Strategy(),
    BucketCapMb(),
    GradientAsBucketView(),
    StaticGraph(),
)
KNOBS: Sequence[Knob] = Registry(OURS)  # ours, then those that the study at hand declares


def knob(name: str) -> Knob:
    """Return the knob with that name or alias. Raises `KeyError`."""
    for candidate in KNOBS:
        if name in (candidate.name, candidate.alias):
            return candidate
    raise KeyError(name)


def worker_knob() -> Knob:
    """Return the knob whose value is the number of loader processes."""
    return next(one for one in KNOBS if one.counts_workers)


def loader_workers(config: Config) -> int:
    """Return the number of loader processes with `config`; 0: the training process loads itself."""
    return int(config.values.get(worker_knob().name) or 0)


def loads_in_turn(config: Config, device: str) -> bool:
    """Return whether the process computes and loads in turn: on a CPU without loader workers nothing overlaps."""
    return device == "cpu" and not loader_workers(config)


def defaults() -> dict[str, Value]:
    """Return PyTorch's own value of every knob of ours, by name."""
    return {candidate.name: candidate.default for candidate in KNOBS if not isinstance(candidate, DeclaredKnob)}


def completed(config: Config) -> Config:
    """Return `config` with a value for every knob: earlier versions knew fewer, which then had their defaults."""
    return Config(values=defaults() | config.values)


def is_ours(name: str) -> bool:
    """Return whether the knob of that full name is autotune's own, not declared by a user."""
    return name in defaults()


def declared_values(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the entries of `values` that belong to knobs which a user declared."""
    ours = defaults()
    return {name: value for name, value in values.items() if name not in ours}


def compiles(config: Config) -> bool:
    """Return whether a probe of `config` compiles the model."""
    return any(one.compiles and config.values.get(one.name, one.default) != one.default for one in KNOBS)


def check(values: Mapping[str, Value]) -> None:
    """Raise `ValueError` (rule and value) unless every knob can apply its value among `values`."""
    for candidate in KNOBS:
        candidate.check(values[candidate.name])


def plan_of(values: Mapping[str, Value], device: str) -> Plan:
    """Return the plan of a training run with these values of all knobs."""
    plan = Plan(device=device)
    for candidate in KNOBS:
        if is_ours(candidate.name):  # a declared one edits no plan
            candidate.apply(values[candidate.name], plan)
    return plan


def touched(configs: Iterable[Config]) -> tuple[Knob, ...]:
    """Return the knobs that at least one of `configs` does not leave at its default."""
    found = [completed(config).values for config in configs]
    return tuple(one for one in KNOBS if any(values.get(one.name, one.default) != one.default for values in found))


def traded(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the knobs whose values trade time for memory, each with the value that does not."""
    influences = [(one, one.influence(values[one.name])) for one in KNOBS if one.name in values]
    return {
        one.name: one.default if influence.relative_to is None else influence.relative_to
        for one, influence in influences
        if influence.trades_time_for_memory
    }


def not_done(values: Mapping[str, Value], observed: Observed) -> tuple[str, str] | None:
    """Return, in words, the first of these values that a training did not use, and the value that it used; or None."""
    for one in KNOBS:
        seen = one.seen(observed)
        if one.name in values and seen and values[one.name] not in seen:
            return _said(one, values[one.name]), _said(one, seen[-1])
    return None


def asked_for(observed: Observed, names: Collection[str]) -> Observed:
    """Return what was observed, without what is on and belongs to none of these knobs."""
    asked = [one for one in KNOBS if one.name in names]
    on: dict[str, Any] = {name: value for name, value in vars(observed).items() if value is True}
    others = [name for name, value in on.items() if not any(one.seen(Observed(**{name: value})) for one in asked)]
    switches = {name: is_on for name, is_on in observed.switches.items() if not is_on or name in names}
    unknown: dict[str, Any] = dict.fromkeys(others)
    return replace(observed, switches=switches, **unknown)


def found(values: Mapping[str, Value], observed: Observed) -> dict[str, Value]:
    """Return, by knob name, the values that the user's own code was seen to set, where these differ."""
    own = {one.name: one.found(observed) for one in KNOBS}
    return {name: value for name, value in own.items() if value is not None and value != values[name]}


def _said(candidate: Knob, value: Value) -> str:
    return candidate.phrase(value) or f"{candidate.name} {candidate.show(value)}"


def environ(values: Mapping[str, Value]) -> dict[str, str]:
    """Return the environment variables that a process needs before it starts, to train with these values."""
    return {
        name: text
        for candidate in KNOBS
        for name, text in candidate.environ(values.get(candidate.name, candidate.default)).items()
    }
