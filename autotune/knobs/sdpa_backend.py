"""`sdpa_backend`: which kernel computes `torch.nn.functional.scaled_dot_product_attention`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from autotune.core.records import Value
from autotune.knobs.base import Circumstances, MemoryEffect, Plan, allowed
from autotune.knobs.choice_knob import ChoiceKnob
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.observed import Observed
from autotune.knobs.torch_switch import SET_BY_CODE
from autotune.knobs.wording import NOTHING, Framework, Wording

MATH = "math"


class Kernel(NamedTuple):
    """A kernel of attention, as torch 2.13 names it."""

    switch: str  # `torch.backends.cuda.enable_<switch>_sdp` and `<switch>_sdp_enabled`, for all devices
    backend: str  # of `torch.nn.attention.SDPBackend`

    @property
    def enable(self) -> str:
        """The function of `torch.backends.cuda` that enables or disables it."""
        return f"enable_{self.switch}_sdp"

    @property
    def is_enabled(self) -> str:
        """The function of `torch.backends.cuda` that returns whether it is enabled."""
        return f"{self.switch}_sdp_enabled"


KERNELS = {
    "cudnn": Kernel("cudnn", "CUDNN_ATTENTION"),
    "flash": Kernel("flash", "FLASH_ATTENTION"),
    "efficient": Kernel("mem_efficient", "EFFICIENT_ATTENTION"),
    MATH: Kernel("math", "MATH"),
}
CHOICES: tuple[Value, ...] = (None, *KERNELS)
# cuDNN 1.11 times as fast end to end as flash (Llama2-70B, H200, bf16), 1.05 elsewhere (docs/knobs.md); not measured by
# this project. The math kernel holds the whole matrix of scores: on a CPU in bfloat16 0.16 to 1.2 times the time of
# flash (benchmarks/attention.py), which is a part of a step.
OTHER_KERNEL = Influence(sample_time=Factor(0.99, 0.08), sample_memory=Factor(1.0, 0.05))
WHOLE_SCORES = Influence(sample_time=Factor(0.97, 0.2), sample_memory=Factor(1.15, 0.2))


class SdpaBackend(ChoiceKnob):
    """The only kernel that attention may use; None leaves the choice to torch, call by call.

    Offered on CUDA: those kernels that accept every call that was seen in a step, in the dtype that is tried, and that
    torch does not take anyway. On a CPU torch takes its flash kernel wherever that can be used: in float32 nothing is
    faster, in half precision the math kernel may be (benchmarks/attention.py).
    """

    name = "sdpa_backend"
    alias = "sdpa"
    option_help = "Attention kernel: none,cudnn,flash,efficient,math."
    label = "attention"
    choices: ClassVar[Mapping[Value, str]] = {**{name: name for name in KERNELS}, "efficient": "effic."}
    memory = MemoryEffect.CHANGES
    only_computes = True
    numerics = True
    arguments = r"sdpa_(backend|kernel)"

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return None and the kernels that can be used in any dtype, or what the user's code leaves enabled."""
        if own := circumstances.facts.found.get(self.name):
            return allowed((own,), circumstances.limit)
        facts, environment = circumstances.facts, circumstances.environment
        dtypes = (
            ("float32", *environment.native_dtypes) if environment.device_kind == "cuda" else environment.native_dtypes
        )
        usable = {kernel for dtype in dtypes for kernel in facts.attention.get(dtype, ())}
        usable &= set(CHOICES) - {MATH} if environment.device_kind == "cuda" else {MATH}
        return allowed(tuple(one for one in CHOICES if one is None or one in usable), circumstances.limit)

    def idle(self, values: Mapping[str, Value], circumstances: Circumstances) -> str:
        """Return that torch takes that kernel anyway, that it cannot compute in that dtype, or cannot gain in it."""
        facts = circumstances.facts
        if self.name in facts.found:
            return SET_BY_CODE
        if facts.calls_attention is False:
            return "no step calls scaled_dot_product_attention"
        if not facts.attention:  # of an earlier version, or the code has disabled some kernels
            return ""
        if circumstances.environment.device_kind == "cpu" and values["amp_dtype"] is None:
            return "in float32 torch's own choice is the fastest on a CPU"
        dtype = str(values["amp_dtype"] or "float32")
        usable = values[self.name] in facts.attention.get(dtype, ())
        return "" if usable else f"in {dtype} torch takes it anyway, or it cannot take every call"

    def phrase(self, value: Value) -> str:
        """Return such as `flash attention`, or nothing."""
        return f"{value} attention" if value else ""

    def influence(self, value: Value) -> Influence:
        """Return little; a whole matrix of scores takes memory."""
        return WHOLE_SCORES if value == MATH else OTHER_KERNEL if value else NEUTRAL

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Return the lines: no framework has an argument for a kernel of torch's.

        Models of transformers call it where their `attn_implementation` is "sdpa", which is their default.
        """
        if value is None:
            return NOTHING
        return Wording(
            setup=tuple(f"torch.backends.cuda.{one.enable}({name == value})" for name, one in KERNELS.items())
        )

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return the only kernel that was enabled; None where torch could choose."""
        if observed.attention is None:
            return ()
        return (next(iter(observed.attention)) if len(observed.attention) == 1 else None,)

    def found(self, observed: Observed) -> Value | None:
        """Return the only kernel that the user's code leaves enabled."""
        return next(iter(self.seen(observed)), None)

    def apply(self, value: Value, plan: Plan) -> None:
        """Enable that kernel alone for the whole process: what it cannot compute is an error, and no slower kernel."""
        if value is None:
            return

        def switch() -> None:
            import torch

            for name, one in KERNELS.items():
                getattr(torch.backends.cuda, one.enable)(name == value)

        plan.setup.append(switch)
