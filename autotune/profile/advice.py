"""What a finding says to the user: what was seen, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.profile.records import REPLAYED_STEPS, SlowLine, Slowness
from autotune.units import format_bytes, format_rate

MOST_SPREAD = 10.0  # times what the line costs: an interval wider than that, around nothing, tells nothing of it
_SEEN: Mapping[Slowness, str] = {
    "host read": "{what} reads a tensor on the host{often}",
    "host tensor": "{what} makes a tensor of host data{often}",
    "collector": "{what} looks through all objects{often}",
    "cache": "{what} makes the host wait for the device{often}",
    "pinning": "{what} locks memory anew{often}, which waits for the device",
    "saving": "{what} writes a file{often}",
    "printing": "{what} makes text{often}",
    "copying": "{what} copies with all that is in it{often}",
    "evaluating": "calls {what}, which trains, without gradients{often}",
    "metric": "{what} of torchmetrics is called{often}: it computes its value each time",
    "hook": "{what} is called as a hook{often}",
    "zeroing": "{what} fills gradients with zeros, and the backward pass adds to them",
    "untrained": "{what} get gradients, and no optimizer steps them",
    "unused": "computes gradients of {what} too, which its optimizer forgets without a step",
    "switch": "{what} on",
    "graph": "the backward pass goes through the steps before, too: {count} operations more with every step",
    "growing": "{what} works on more with every step",
    "loop": "{what} and others{often}, on little each time: about, with their backward pass",
    "clone": "{what} of a tensor that nobody changes, nor its copy{often}",
    "casting": "{what}, and back{often}: about, with their backward pass",
    "growth": "memory grows by {grown} a step: what is made here is kept{holder}",
    "float64": "makes float64 of what was not, and the model computes with it: about that much more than float32",
    "sizes": "{what} would take less time{often}: about, timed alone with their backward pass",
    "python": "code outside of torch's operations",
    "waiting": "waits outside of torch: for a clock, a file, another process or the network",
    "loading": "makes samples or batches, and the step waits",
    "rereading": "reads {what}{often}, and the step waits",
    "joining": "{what} copies arrays or tensors{often}, and the step waits",
    "order": "samples that take up to {ratio:.0f} times the median, such as index {what}: ready batches wait",
    "tail": "samples that take up to {ratio:.0f} times the median, such as index {what}{often}",
}
_INSTEAD: Mapping[Slowness, str] = {
    "host read": "keep a tensor (detach), read it now and then",
    "host tensor": "make it once, outside of the step, or in dataset(), where workers do it",
    "collector": "leave it out: Python collects by itself",
    "cache": "leave it out: PyTorch reuses freed memory, and waits where it has to",
    "pinning": "DataLoader(pin_memory=True): a thread does it meanwhile, or copy without",
    "saving": "save once in 1,000 steps or at the end of an epoch",
    "printing": "print a number, and not in every step",
    "copying": "copy what changes: torch.optim.swa_utils.AveragedModel averages in place",
    "evaluating": "detach() the outputs that the loss has, or evaluate now and then",
    "metric": "its update() in every step, its compute() now and then",
    "hook": "take it off, or let it return at once in most steps",
    "zeroing": "zero_grad(): set_to_none=True is the default",
    "untrained": "requires_grad_(False) for them, or give them to the optimizer",
    "unused": "requires_grad_(False) for them in this part of the step, as toggling optimizers does",
    "switch": "leave it off where nothing is searched for",
    "graph": "detach() what goes on to the next step, and no retain_graph",
    "growing": "keep a running value, or as many as a fixed size",
    "loop": "one operation on the whole batch: none needs the result of another",
    "clone": "leave it out: it is needed before a change in place only",
    "casting": "stay in one dtype, or let autocast choose",
    "growth": "keep numbers: tensors stay, and with a grad_fn the graph behind them",
    "float64": "float32, in NumPy too; a model without .double()",
    "sizes": "the larger size: the rest of it is not used, such as tokens that never come",
    "python": "do it in dataset(), where workers do it, or with tensors, or not in every step",
    "waiting": "leave it out, or do it in a thread, or not in every step",
    "loading": "loader workers share it; or prepare it once",
    "rereading": "read it once, in __init__ or at the first sample",
    "joining": "torch.from_numpy shares an array, torch.stack copies once; or loader workers share it",
    "order": "DataLoader(in_order=False), about that much by their times: batches come as they are ready",
    "tail": "prepare them once, or leave them out",
}


def seen(one: SlowLine) -> str:
    """Return what was seen, for a sentence that begins with the line."""
    return _SEEN[one.kind].format(
        what=one.what,
        count=f"{one.count:,.0f}",
        often=f", {_times(one.count)} a step",
        grown=format_bytes(one.bytes),
        holder=f", in {one.what}" if one.what else "",
        ratio=one.ratio,
    )


def _times(count: float) -> str:
    return f"{count:,.0f} times" if count >= 1.5 else "once" if count >= 0.75 else f"{count:.2g} times"


def instead(one: SlowLine) -> str:
    """Return what to write instead."""
    return _INSTEAD[one.kind]


def tried(one: SlowLine) -> str:
    """Return what was measured without it, in a clause; empty where that was not asked for."""
    if one.unverified:
        return f"not verified: {one.unverified}"
    if (gain := one.gain) is None:
        return ""
    if gain.low < 0 and gain.high - gain.low > MOST_SPREAD * one.seconds:
        return "not verified: steps with and without it differ too much, probably for other work on the machine"
    between = f"{_ms(gain.low)} to {_ms(gain.high)}"
    if gain.low <= 0:
        found = f"without it no faster for sure (measured, {between} ms a step)"
    else:
        found = f"without it {_ms(gain.seconds)} ms faster a step (measured, {between})"
    same = f"; the same losses in {REPLAYED_STEPS} steps" if gain.same_losses else ""
    return found + same + (f"; gives up {gain.gives_up}" if gain.gives_up else "")


def _ms(seconds: float) -> str:
    shown = format_rate(1000 * abs(seconds)) if seconds else "0"
    return f"-{shown}" if seconds < 0 else shown
