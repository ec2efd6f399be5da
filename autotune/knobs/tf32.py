"""`tf32`: whether products of float32 matrices are computed in TensorFloat-32 on GPUs that have it."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.core.records import Environment, Value
from autotune.knobs.base import NOT_DONE, Circumstances, MemoryEffect
from autotune.knobs.influence import Factor, Influence
from autotune.knobs.torch_switch import TorchSwitch
from autotune.knobs.wording import NOTHING, Framework, Wording

LEAST_CAPABILITY = 8  # Ampere: the first with TF32 cores
# +20 % in the table of a Hugging Face benchmark, 2 to 3 times as fast as strict float32 in others, for the part of a
# step that multiplies matrices (docs/knobs.md). GPT-2 small, at a batch eight times as large, took 0.42 of the time on
# an H200 (docs/notes/gpu.md 6).
TENSOR_CORES = Influence(sample_time=Factor(0.6, 0.35))
LINE = 'torch.set_float32_matmul_precision("high")'


class Tf32(TorchSwitch):
    """Offered on CUDA devices of capability 8.0 and above; without autocast only, which leaves no float32 products.

    Of three states torch's own is the middle one: convolutions and recurrent layers compute in TF32, other products in
    float32. This knob moves the others; strict float32 is what code has that sets `torch.backends.cudnn.allow_tf32`.
    """

    name = "tf32"
    alias = "tf32"
    option_help = "TF32 for float32 products: true,false."
    label = "tf32"
    shown = (NOT_DONE, "tf32")
    words = "TF32 products"
    memory = MemoryEffect.NONE
    only_computes = True
    numerics = True
    arguments = r"(use_|allow_|enable_)?tf32"
    effect = TENSOR_CORES

    def is_offered(self, circumstances: Circumstances) -> bool:
        """Return whether the device has TF32."""
        return not self.missing(circumstances)

    def missing(self, circumstances: Circumstances) -> str:
        """Return that the device has no TF32."""
        return "" if has_tf32(circumstances.environment) else "only CUDA devices of capability 8.0 and above have it"

    def idle(self, values: Mapping[str, Value], circumstances: Circumstances) -> str:
        """Return why it is idle: as every switch, or because autocast leaves no products of float32."""
        why = super().idle(values, circumstances)
        return why or ("autocast leaves no float32 products" if values["amp_dtype"] is not None else "")

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Return the one call that old and new switches of torch agree with, and the argument of transformers."""
        if not value:
            return NOTHING
        is_theirs = framework is Framework.HUGGING_FACE and device.startswith("cuda")  # it refuses others
        return Wording(setup=(LINE,), arguments={"tf32": True} if is_theirs else {})

    def switch_on(self) -> None:
        """Set it by the older call, as readers of the older switches fail after others."""
        import torch

        torch.set_float32_matmul_precision("high")

    def is_on(self) -> bool | None:
        """Return whether products of float32 matrices on a GPU are computed in TF32."""
        import torch

        return has_tf32_products() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]  # torch 2.13


def has_tf32_products() -> bool:
    """Return whether this process asks for TF32 products; imports torch."""
    import torch

    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # torch 2.13, if only the newer switch was set
        return str(torch.backends.cuda.matmul.fp32_precision) not in ("none", "ieee")


def has_tf32(environment: Environment) -> bool:
    """Return whether the device has TF32 cores."""
    major = (environment.capability or "0").partition(".")[0]
    return environment.device_kind == "cuda" and int(major) >= LEAST_CAPABILITY


def state(*, products: bool, convolutions: bool) -> str:
    """Return what float32 means in a process, in words; by whether products and convolutions use TF32."""
    if products:
        return "TF32" if convolutions else "TF32, convolutions in strict float32"
    return "float32, convolutions in TF32 (torch's default)" if convolutions else "strict float32"
