"""`amp_dtype`: the dtype of autocast, or None for none; float16 brings a gradient scaler."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from autotune.core.records import Environment, Value
from autotune.harmless import python
from autotune.knobs.base import Circumstances, Knob, MemoryEffect, Plan, allowed
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.observed import Observed
from autotune.knobs.wording import NOTHING, Framework, Wording

CHOICES: tuple[Value, ...] = (None, "bfloat16", "float16")
SPELLINGS = {"bf16": "bfloat16", "fp16": "float16", "none": None, "fp32": None, "float32": None}
# Launches cost more (+22 to +47 % on a CPU), samples less: from a third of the time on tensor cores to more than the
# whole on CPUs (docs/notes/throughput.md 2). Where both are native, float16 is nearly as fast and as large as bfloat16.
HALF_ON_CORES = Influence(
    fixed_time=Factor(1.12, 0.15),
    sample_time=Factor(0.6, 0.45),
    fixed_memory=Factor(1.05, 0.08),
    sample_memory=Factor(0.62, 0.15),
)
# Against float32 products without tensor cores, torch's default (docs/notes/gpu.md 6); against convolutions, which
# torch computes in TF32, it is about half.
HALF = replace(HALF_ON_CORES, sample_time=Factor(0.35, 0.6), on_cores=HALF_ON_CORES)
OTHER_HALF_ON_CORES = Influence(
    relative_to="bfloat16",
    fixed_time=Factor(1.02, 0.08),
    sample_time=Factor(1.0, 0.35),
    fixed_memory=Factor(1.0, 0.03),
    sample_memory=Factor(1.0, 0.03),
)
OTHER_HALF = replace(  # the same tensor cores, and a gradient scaler besides, for which a step waits once
    OTHER_HALF_ON_CORES, fixed_time=Factor(1.05, 0.08), sample_time=Factor(1.03, 0.06), on_cores=OTHER_HALF_ON_CORES
)
SHORT: dict[Value, str] = {None: "fp32", "bfloat16": "bf16", "float16": "fp16"}
LIGHTNING: dict[Value, str] = {None: "32-true", "bfloat16": "bf16-mixed", "float16": "16-mixed"}
ACCELERATE: dict[Value, str] = {None: "no", "bfloat16": "bf16", "float16": "fp16"}
TORCH: dict[Value, str] = {None: "float32", "bfloat16": "bfloat16", "float16": "float16"}
PRECISION: dict[Value, str] = {None: "32", "bfloat16": "bf16", "float16": "16"}  # Lightning's before 2
OPEN_CLIP: dict[Value, str] = {None: "fp32", "bfloat16": "amp_bf16", "float16": "amp"}


class AmpDtype(Knob):
    """The dtype of autocast. It offers what the device computes natively; an explicit list may name others."""

    name = "amp_dtype"
    alias = "amp"
    option_help = "Precision of autocast: none,bf16,fp16."
    label = "precision"
    ordered = False
    default: Value = None
    memory = MemoryEffect.CHANGES
    only_computes = True
    numerics = True
    arguments = r"precision|mixed_precision|amp_?(dtype|precision)|autocast_dtype"
    doubtful = r"(use_|enable_)?(amp|half|autocast|mixed_precision|fp16_mixed)|(torch_|model_|compute_)?dtype"
    formats: Mapping[str, Mapping[Value, str]] = {
        "": TORCH, "torch": TORCH, "short": SHORT, "lightning": LIGHTNING, "accelerate": ACCELERATE,
        "digits": PRECISION, "open_clip": OPEN_CLIP,
    }  # fmt: skip
    value_names: Mapping[str, Value] = {
        "bf16": "bfloat16",
        "bfloat16": "bfloat16",
        "fp16": "float16",
        "float16": "float16",
    }

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return None (full precision), then the native dtypes."""
        native = circumstances.environment.native_dtypes
        return allowed(tuple(c for c in CHOICES if c is None or c in native), circumstances.limit)

    def unoffered(self, environment: Environment) -> str:
        """Return that the device computes neither dtype natively."""
        if any(choice in environment.native_dtypes for choice in CHOICES):
            return ""
        return f"this {'processor' if environment.device_kind == 'cpu' else 'GPU'} has no native bfloat16 or float16"

    def check(self, value: Value) -> None:
        """Raise `ValueError` unless it is None, "bfloat16" or "float16"."""
        if value not in CHOICES or isinstance(value, bool):
            raise ValueError(f'{self.name} must be "bfloat16", "float16" or None, got {value!r}')

    def parse(self, text: str) -> Value:
        """Return the dtype of `bfloat16` or `bf16`, `float16` or `fp16`, `none` or `fp32`."""
        value = SPELLINGS.get(text.lower(), text)
        self.check(value)
        return value

    def show(self, value: Value) -> str:
        """Return the value as shown in tables: `fp32`, `bf16` or `fp16`."""
        return SHORT[value] if isinstance(value, str) else SHORT[None]

    def phrase(self, value: Value) -> str:
        """Return the value in words, such as `amp bfloat16`."""
        return "no autocast" if value is None else f"amp {value}"

    def caution(self, value: Value) -> float:
        """Return the rank of caution: full precision, then bfloat16, then float16."""
        return float(CHOICES.index(value))

    def influence(self, value: Value) -> Influence:
        """Return half precision relative to full, and float16 relative to bfloat16."""
        return {"bfloat16": HALF, "float16": OTHER_HALF}.get(str(value), NEUTRAL)

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Return the framework's option for autocast; DeepSpeed's `bf16` and `fp16` mean weights of that dtype."""
        dtype = value if isinstance(value, str) else None
        match framework:
            case Framework.LIGHTNING:
                return Wording(arguments={"precision": LIGHTNING[dtype]})
            case Framework.ACCELERATE:
                return Wording(arguments={"mixed_precision": ACCELERATE[dtype]})
            case Framework.HUGGING_FACE if dtype:
                return Wording(arguments={SHORT[dtype]: True})
            case Framework.DEEPSPEED if dtype:
                return Wording(arguments={"torch_autocast": {"enabled": True, "dtype": dtype}})
            case Framework.TORCHTITAN:
                return Wording(arguments={"training.mixed_precision_param": TORCH[dtype]}, scaler=dtype == "float16")
            case Framework.TORCH if dtype:
                return Wording(
                    context=f"torch.autocast({python(device)}, dtype=torch.{dtype})", scaler=dtype == "float16"
                )
        return NOTHING

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return the dtypes of autocast and parameters; (None,) if only float32 was seen."""
        if observed.precisions is None:
            return ()
        return tuple(choice for choice in CHOICES if choice in observed.precisions) or (None,)

    def apply(self, value: Value, plan: Plan) -> None:
        """Add an autocast context around forward pass and loss."""
        if value is None:
            return
        kind, name = plan.device.partition(":")[0], str(value)

        def autocast() -> AbstractContextManager[Any]:
            import torch

            context: AbstractContextManager[Any] = torch.autocast(kind, dtype=getattr(torch, name))
            return context

        plan.setup.append(lambda: _refuse_silence(autocast, name, kind))
        plan.forward_contexts.append(autocast)
        plan.scale_loss = value == "float16"


def _refuse_silence(autocast: Any, dtype: str, device: str) -> None:
    """Raise an error if torch only warns and would go on in float32 (torch 2.13: `Disabling autocast`)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        autocast()
    if caught:
        raise ValueError(f"autocast was disabled: {dtype} on {device} gives: {caught[0].message}")
