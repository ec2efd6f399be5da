"""The texts about a slow line of a profile by its kind, a word of `Slowness` (`profile/records.py`): seen, instead.

Numbers stand in braces and brackets as in `codes.py`; that code is `SLOW_LINE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class SlowLineText(NamedTuple):
    """The texts about one kind of slow line."""

    seen: str  # in a sentence that begins with the line
    instead: str  # what to write
    untried: str = ""  # why `--verify` does not leave it out; empty: it does


_ENDS = "[; no memory is left after about {steps_left:,} steps]"
_ANOTHER_DATASET = "samples that are prepared once are another dataset, which is for you to write"
SLOW_LINE_TEXTS: Mapping[str, SlowLineText] = {
    "host read": SlowLineText(
        "{what} reads a tensor on the host, {count:times} a step",
        "keep a tensor (detach), read it now and then",
    ),
    "host tensor": SlowLineText(
        "{what} makes a tensor of host data, {count:times} a step",
        "make it once, outside of the step, or in the dataset, where workers do it",
    ),
    "collector": SlowLineText(
        "{what} looks through all objects, {count:times} a step",
        "leave it out: Python collects by itself",
    ),
    "full collection": SlowLineText(
        "Python looks for garbage among all objects, torch's included, {count:times} a step: each step makes many "
        "new ones",
        "gc.collect(); gc.freeze() before the first step: then it looks at newer objects only",
        "it comes too seldom for steps in turn",
    ),
    "cache": SlowLineText(
        "{what} makes the host wait for the device, {count:times} a step",
        "leave it out: PyTorch reuses freed memory, and waits where it has to",
    ),
    "pinning": SlowLineText(
        "{what} locks memory anew, {count:times} a step, which waits for the device",
        "DataLoader(pin_memory=True): a thread does it meanwhile, or copy without",
    ),
    "saving": SlowLineText(
        "{what} writes a file, {count:times} a step",
        "save once in 1,000 steps or at the end of an epoch",
    ),
    "printing": SlowLineText(
        "{what} makes text, {count:times} a step",
        "print a number, and not in every step",
    ),
    "copying": SlowLineText(
        "{what} copies with all that is in it, {count:times} a step",
        "leave it out if nobody changes it in place; torch.optim.swa_utils.AveragedModel averages weights in place",
    ),
    "evaluating": SlowLineText(
        "calls {what}, which trains, without gradients, {count:times} a step",
        "detach() the outputs that the loss has, or evaluate now and then",
    ),
    "teacher": SlowLineText(
        "calls {what}, which no optimizer trains, without gradients, {count:times} a step",
        "keep what it gives where neither its weights nor its inputs change; else compute it in lower precision",
        "the loss learns from what it gives; how to keep that is for you to write",
    ),
    "metric": SlowLineText(
        "{what} of torchmetrics is called, {count:times} a step: it computes its value each time",
        "its update() in every step, its compute() now and then",
    ),
    "hook": SlowLineText(
        "{what} is called as a hook, {count:times} a step",
        "take it off, or let it return at once in most steps",
    ),
    "zeroing": SlowLineText(
        "{what} fills gradients with zeros, and the backward pass adds to them",
        "zero_grad(): set_to_none=True is the default",
    ),
    "untrained": SlowLineText(
        "{what} get gradients, and no optimizer steps them",
        "requires_grad_(False) for them, or give them to the optimizer",
    ),
    "unused": SlowLineText(
        "computes gradients of {what} too, which its optimizer forgets without a step",
        "requires_grad_(False) for them in this part of the step, as toggling optimizers does",
    ),
    "collective": SlowLineText(
        "{what} waits for other ranks, {count:times} a step",
        "add it up on each rank, and exchange it now and then; gradients by DistributedDataParallel",
        "another rank would wait for it",
    ),
    "early exchange": SlowLineText(
        "ranks exchange gradients to which more micro-batches are added, {count:times} a step",
        "model.no_sync() around forward and backward pass of all but the last",
        "the ranks would have to agree on it",
    ),
    "graph search": SlowLineText(
        "{what} looks through the graph, {count:times} a step, and every parameter got a gradient (estimate: the "
        "search alone)",
        "leave it out",
        "it is set when the model is wrapped",
    ),
    "switch": SlowLineText(
        "{what} on",
        "leave it off where nothing is searched for",
    ),
    "graph": SlowLineText(
        "the backward pass goes through the steps before, too: {count:,.0f} operations more with every step" + _ENDS,
        "detach() what goes on to the next step, and no retain_graph",
        "without it the gradients are others",
    ),
    "growing": SlowLineText(
        "{what} works on more with every step",
        "keep a running value, or as many as a fixed size",
        "how much of it is needed is for you to say",
    ),
    "loop": SlowLineText(
        "many small operations such as {what}, {count:times} a step (estimate, backward pass included)",
        "one operation on all at once, such as the whole batch: none needs the result of another",
        "one operation on the whole batch is another model, which is for you to write",
    ),
    "clone": SlowLineText(
        "{what} of a tensor that nobody changes, nor its copy, {count:times} a step",
        "leave it out: it is needed before a change in place only",
    ),
    "casting": SlowLineText(
        "casts {what} and back, {count:times} a step (estimate, backward pass included)",
        "stay in one dtype, or let autocast choose",
        "without it the losses are others",
    ),
    "growth": SlowLineText(
        "memory grows by {bytes:bytes} a step: what is made here is kept[, in {what}]" + _ENDS,
        "keep numbers: tensors stay, and with a grad_fn the graph behind them",
        "it costs memory",
    ),
    "float64": SlowLineText(
        "creates float64 tensors that the model computes with: float32 would save about this much",
        "float32, in NumPy too; a model without .double()",
        "in float32 the losses are others",
    ),
    "sizes": SlowLineText(
        "{what} would be faster, {count:times} a step (estimate: timed alone, backward pass included)",
        "the larger size: the rest of it is not used, such as tokens that never come",
        "a larger weight is another model, which is for you to write",
    ),
    "python": SlowLineText(
        "code outside of torch's operations",
        "do it in the dataset, where workers do it, or with tensors, or not in every step",
    ),
    "waiting": SlowLineText(
        "waits outside of torch: for a clock, a file, another process or the network",
        "leave it out, or do it in a thread, or not in every step",
    ),
    "loading": SlowLineText(
        "makes samples or batches, and the step waits",
        "loader workers share it; or prepare once what is not random",
        _ANOTHER_DATASET,
    ),
    "rereading": SlowLineText(
        "reads {what}, {count:times} a step, and the step waits",
        "read it once, in __init__ or at the first sample",
        _ANOTHER_DATASET,
    ),
    "joining": SlowLineText(
        "{what} copies arrays or tensors, {count:times} a step, and the step waits",
        "torch.from_numpy shares an array, torch.stack copies once; or loader workers share it",
        _ANOTHER_DATASET,
    ),
    "one by one": SlowLineText(
        "{what} is indexed sample by sample, {count:times} a step, where one indexing gives the same batch",
        "DataLoader(loader.dataset, batch_size=None, sampler=loader.batch_sampler): `loader` is your present one",
    ),
    "order": SlowLineText(
        "samples that take up to {ratio:.0f} times the median, such as index {what}: ready batches wait",
        "DataLoader(in_order=False), about that much by their times: batches come as they are ready",
    ),
    "tail": SlowLineText(
        "samples that take up to {ratio:.0f} times the median, such as index {what}, {count:times} a step",
        "prepare them once, or leave them out",
        "in_order=False needs loader workers: --config num_workers=2",
    ),
}
