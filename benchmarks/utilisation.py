"""Model-FLOP utilisation: the share of what a device could compute that went into the model's own arithmetic.

    FLOP of one sample (counted: `flops.py`) x samples/s / peak of the device in that arithmetic

Recomputed activations, optimizer and loss scaling are no model FLOP (as in PaLM, arXiv 2204.02311, appendix B).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from autotune.core.records import Value

UNKNOWN = "unknown device: no MFU"


class Peaks(NamedTuple):
    """Dense TFLOP/s, tensor cores where they are; None: the hardware has no such arithmetic."""

    half: float  # float16 and bfloat16, accumulated in float32
    tf32: float | None
    float32: float
    source: str
    has_bfloat16: bool = True


# By the name that torch and NVML give. Where a datasheet shows figures "with sparsity", half of them is meant.
PEAKS: dict[str, Peaks] = {
    r"NVIDIA H200": Peaks(989.4, 494.7, 66.9, "H200 datasheet, SXM: 1,979 with sparsity"),
    r"NVIDIA H100 80GB HBM3": Peaks(989.4, 494.7, 66.9, "H100 datasheet, SXM: 1,979 with sparsity"),
    r"NVIDIA H100 PCIe": Peaks(756.5, 378.0, 51.2, "H100 architecture whitepaper, PCIe 5: 1,513 with sparsity"),
    r"NVIDIA A100.*": Peaks(312.0, 156.0, 19.5, "A100 datasheet"),
    r"NVIDIA L4": Peaks(121.0, 60.0, 30.3, "L4 datasheet: 242 with sparsity"),
    r"NVIDIA GeForce RTX 4090": Peaks(165.2, 82.6, 82.6, "Ada architecture whitepaper, float32 accumulate"),
    r"Tesla V100-SXM2.*": Peaks(125.0, None, 15.7, "V100 datasheet, SXM2", has_bfloat16=False),
    r"Tesla T4": Peaks(65.0, None, 8.1, "T4 datasheet", has_bfloat16=False),
}


def peaks_of(device_name: str) -> Peaks | None:
    """Those of exactly that device; None where nobody has looked them up."""
    return next((peaks for name, peaks in PEAKS.items() if re.fullmatch(name, device_name)), None)


def peak_flops(device_name: str, values: Mapping[str, Value], *, convolves: bool) -> tuple[float, str] | None:
    """FLOP/s that the device has for this configuration, and the arithmetic meant; None: not known.

    Full precision counts as TF32 where the configuration asks for it, and for models that mostly convolve, which cuDNN
    does in TF32 unless told otherwise (`torch.backends.cudnn.allow_tf32`, true by default in torch 2.13).
    """
    peaks = peaks_of(device_name)
    if peaks is None:
        return None
    dtype = values.get("amp_dtype")
    if dtype == "bfloat16" and not peaks.has_bfloat16:
        return None
    if dtype is not None:
        return peaks.half * 1e12, str(dtype)
    if peaks.tf32 is not None and (values.get("tf32") or convolves):
        return peaks.tf32 * 1e12, "tf32"
    return peaks.float32 * 1e12, "float32"


def utilisation(
    flops_per_sample: float,
    samples_per_second: float,
    device_name: str,
    values: Mapping[str, Value],
    *,
    convolves: bool,
) -> float | None:
    """The share, 0..1; None where the peak is not known."""
    peak = peak_flops(device_name, values, convolves=convolves)
    return None if peak is None else flops_per_sample * samples_per_second / peak[0]
