"""What a finding says to the user: what was seen, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.profile.records import SlowLine, Slowness
from autotune.units import format_bytes

_SEEN: Mapping[Slowness, str] = {
    "host read": "{what} reads a tensor on the host{often}",
    "host tensor": "{what} makes a tensor of host data{often}",
    "collector": "{what} looks through all objects{often}",
    "cache": "{what} makes the host wait for the device{often}",
    "saving": "{what} writes a file{often}",
    "zeroing": "{what} fills gradients with zeros, and the backward pass adds to them",
    "untrained": "{what} get gradients, and no optimizer steps them",
    "growth": "memory grows by {grown} a step: what is made here is kept{holder}",
    "float64": "makes float64 of what was not, and the model computes with it: about that much more than float32",
    "python": "code outside of torch's operations",
    "tail": "samples that take up to {ratio:.0f} times the median, such as index {what}{often}",
}
_INSTEAD: Mapping[Slowness, str] = {
    "host read": "keep a tensor (detach), read it now and then",
    "host tensor": "make it once, outside of the step, or in dataset(), where workers do it",
    "collector": "leave it out: Python collects by itself",
    "cache": "leave it out: PyTorch reuses freed memory, and waits where it has to",
    "saving": "save once in 1,000 steps or at the end of an epoch",
    "zeroing": "zero_grad(): set_to_none=True is the default",
    "untrained": "requires_grad_(False) for them, or give them to the optimizer",
    "growth": "keep loss.detach(): what has its graph keeps all of it",
    "float64": "float32, in NumPy too; a model without .double()",
    "python": "do it in dataset(), where workers do it, or with tensors, or not in every step",
    "tail": "prepare them once, or leave them out; with workers, in_order=False",
}


def seen(one: SlowLine) -> str:
    """Return what was seen, for a sentence that begins with the line."""
    times = f"{one.count:,.0f} times" if one.count >= 1.5 else "once" if one.count >= 0.75 else f"{one.count:.2g} times"
    return _SEEN[one.kind].format(
        what=one.what,
        often=f", {times} a step",
        grown=format_bytes(one.bytes),
        holder=f", in {one.what}" if one.what else "",
        ratio=one.ratio,
    )


def instead(one: SlowLine) -> str:
    """Return what to write instead."""
    return _INSTEAD[one.kind]
