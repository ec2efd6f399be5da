"""`tf32`: whether products of float32 matrices are computed in TensorFloat-32 on GPUs that have it."""

from __future__ import annotations

from autotune.core.records import Environment, TargetFacts, Value
from autotune.knobs.base import NOT_DONE, Circumstances, MemoryEffect, Plan, SwitchKnob, allowed
from autotune.knobs.influence import Factor, Influence
from autotune.knobs.observed import Observed
from autotune.knobs.wording import NOTHING, Framework, Wording

LEAST_CAPABILITY = 8  # Ampere: the first with TF32 cores
# +20 % in the table of a Hugging Face benchmark, 2 to 3 times as fast as strict float32 in others, for the part of a
# step that multiplies matrices (docs/knobs.md). Not measured by this project.
TENSOR_CORES = Influence(sample_time=Factor(0.75, 0.3))
LINE = 'torch.set_float32_matmul_precision("high")'


class Tf32(SwitchKnob):
    """Offered on CUDA devices of capability 8.0 and above; without autocast only, which leaves no float32 products.

    Of three states torch's own is the middle one: convolutions and recurrent layers compute in TF32, other products in
    float32. This knob moves the others; strict float32 is what code has that sets `torch.backends.cudnn.allow_tf32`.
    """

    name = "tf32"
    alias = "tf32"
    option_help = "TF32 for float32 products: true,false."
    label = "matmul"
    shown = (NOT_DONE, "tf32")
    words = "TF32 products"
    memory = MemoryEffect.NONE
    only_computes = True
    numerics = True
    arguments = r"(use_|allow_|enable_)?tf32"
    effect = TENSOR_CORES

    def is_offered(self, facts: TargetFacts) -> bool:
        """Return True: the device decides."""
        return True

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return both values where the device has TF32 and the user's code does not set it already."""
        if circumstances.facts.found.get(self.name):
            return allowed((True,), circumstances.limit)
        return allowed((False, True) if has_tf32(circumstances.environment) else (False,), circumstances.limit)

    def canonical(self, values: dict[str, Value], circumstances: Circumstances) -> Value:
        """Return what the user's code sets, and False under autocast."""
        if circumstances.facts.found.get(self.name):
            return True
        return False if values["amp_dtype"] is not None else values[self.name]

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Return the one call that old and new switches of torch agree with, and the argument of transformers."""
        if not value:
            return NOTHING
        is_theirs = framework is Framework.HUGGING_FACE and device.startswith("cuda")  # it refuses others
        return Wording(setup=(LINE,), arguments={"tf32": True} if is_theirs else {})

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return whether products were computed in it."""
        return () if observed.tf32_products is None else (observed.tf32_products,)

    def found(self, observed: Observed) -> Value | None:
        """Return True where the user's code sets it."""
        return observed.tf32_products or None

    def apply(self, value: Value, plan: Plan) -> None:
        """Switch it on for the whole process: by the older call, as readers of the older switches fail after others."""
        if not value:
            return

        def switch() -> None:
            import torch

            torch.set_float32_matmul_precision("high")

        plan.setup.append(switch)


def has_tf32(environment: Environment) -> bool:
    """Return whether the device has TF32 cores."""
    major = (environment.capability or "0").partition(".")[0]
    return environment.device_kind == "cuda" and int(major) >= LEAST_CAPABILITY


def state(*, products: bool, convolutions: bool) -> str:
    """Return what float32 means in a process, in words; by whether products and convolutions use TF32."""
    if products:
        return "TF32" if convolutions else "TF32, convolutions in strict float32"
    return "float32, convolutions in TF32 (torch's default)" if convolutions else "strict float32"
