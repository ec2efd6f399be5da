"""`cudnn_benchmark`: whether cuDNN times its algorithms for each new shape, and takes the fastest."""

from __future__ import annotations

from autotune.core.records import Value
from autotune.knobs.base import Circumstances, MemoryEffect
from autotune.knobs.influence import Factor, Influence
from autotune.knobs.torch_switch import TorchSwitch
from autotune.knobs.wording import NOTHING, Framework, Wording

# Model-dependent: a few per cent in most, 20 times as fast where the heuristic choice is a cliff (docs/knobs.md). Not
# measured by this project. A workspace is chosen with the algorithm.
TRIED = Influence(sample_time=Factor(0.95, 0.15), fixed_memory=Factor(1.0, 0.05), sample_memory=Factor(1.0, 0.05))
# Of the first step: 21.8 s with ResNet-50 and 1,024 images in float16, channels last, on an H200 (docs/notes/gpu.md 6),
# less with fewer images.
TIMING_SECONDS = 15.0


class CudnnBenchmark(TorchSwitch):
    """Offered for models with convolutions on CUDA, unless the user's code asks for deterministic algorithms.

    Each new shape is timed: if shapes vary, the probe shows the cost.
    """

    name = "cudnn_benchmark"
    alias = "cudnn_benchmark"
    option_help = "Let cuDNN time its algorithms: true,false."
    label = "cudnn"
    words = "cudnn.benchmark"
    memory = MemoryEffect.UNSEEN
    only_computes = True
    arguments = r"cudnn_?benchmark"
    effect = TRIED

    def is_offered(self, circumstances: Circumstances) -> bool:
        """Return whether there are convolutions on CUDA, and the code does not ask for deterministic algorithms."""
        facts = circumstances.facts
        return facts.has_convolution and not facts.is_deterministic and not self.missing(circumstances)

    def compiling_seconds(self, value: Value) -> float:
        """Return `TIMING_SECONDS` if the switch is on, else 0."""
        return TIMING_SECONDS if value else 0.0

    def missing(self, circumstances: Circumstances) -> str:
        """Return that the device does not use cuDNN; empty if it does."""
        return "" if circumstances.environment.device_kind == "cuda" else "only CUDA devices have cuDNN"

    def caution(self, value: Value) -> float:
        """Return 1 for on: it may take another algorithm in the next run."""
        return float(bool(value))

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Return the argument of Lightning's Trainer, else the line."""
        if not value:
            return NOTHING
        if framework is Framework.LIGHTNING:
            return Wording(arguments={"benchmark": True})
        return Wording(setup=("torch.backends.cudnn.benchmark = True",))

    def switch_on(self) -> None:
        """Make cuDNN time its algorithms for each new shape, in the whole process."""
        import torch

        torch.backends.cudnn.benchmark = True

    def is_on(self) -> bool | None:
        """Return whether cuDNN times its algorithms."""
        import torch

        is_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch 2.13
        return torch.backends.cudnn.benchmark if is_used else None
