"""The recommendation as a plain PyTorch loop: one that needs no autotune, and the shorter one that uses it."""

from __future__ import annotations

from collections.abc import Collection

from autotune.core.records import TargetFacts
from autotune.export.data import OWN_STEP, TRAINING_STEP, call, data_of
from autotune.export.own_training import kept
from autotune.export.recipe import OPTIMIZER, OPTIMIZERS, Recipe, assembled, epochs, loader
from autotune.harmless import python

DATA_LOADER = "from torch.utils.data import DataLoader"
SCALED_STEP = "scaler.step(optimizer), and after the last one scaler.update()"
CLIPPING = "torch.nn.utils.clip_grad_norm_(model.parameters(), clip_grad_norm)"  # by the target's number
# As when measured. Dropped at each epoch's end, a whole epoch without one step would go unnoticed.
COUNTER = "micro_batches = 0  # over all epochs: a rest is part of the next step"


def text(found: Recipe) -> str:
    """Python about `model`, `dataset`, `loss_fn`, `optimizer` and `epochs`, and other names of the target's file.

    Where the target trains by code of its own, it ends before the loop.
    """
    return assembled(
        found,
        (
            DATA_LOADER,
            "from torch.nn.parallel import DistributedDataParallel",
            "from torch.utils.data.distributed import DistributedSampler",
        ),
        *found.rank_setup,
        f"model = model.to({python(found.device)})",
        *found.model,
        f"model = {call('DistributedDataParallel', 'model', **found.replicated)}"
        if found.replicated is not None
        else "",
        loader(found),
        f"scaler = torch.amp.GradScaler({python(found.device)})" * found.scaler,
        found.optimizer_line,
        *(_own(found) if found.data.own_training else _loop(found)),
    )


def with_autotune(study: str, facts: TargetFacts | None) -> str:
    """Return a loop around `autotune.apply(study)`, as the page shows it: the same lines for every answer.

    For a target that trains by code of its own, the lines before the loop.
    """
    data, update = data_of(facts), facts.update if facts else ()
    options = {name: f"tuned[{python(name)}]" for name in ("batch_size", "num_workers")}
    made = data.loader(options, spread="tuned.dataloader_kwargs()")
    is_clipped = "clip_grad_norm" in update and not data.own_training
    imports = "import autotune" + "\nimport torch" * is_clipped + f"\n{DATA_LOADER}" * ("DataLoader(" in made)
    before = f"""{imports}

tuned = autotune.apply({python(study)})
{made}
model = tuned.prepare(model)
scaler = tuned.grad_scaler()
"""
    if data.own_training:
        comments = kept(
            data,
            batch=("batch = tuned.to_device(batch)",),
            context="with tuned.autocast():",
            backward="scaler.scale(loss).backward()",
            update=SCALED_STEP,
            accumulation='tuned["gradient_accumulation_steps"]' * (data.own_training == TRAINING_STEP),
        )
        made = "optimizers = [tuned.prepare_optimizer(one) for one in optimizers]"
        return before + "\n".join((OPTIMIZERS, made, *comments))
    return f"""{before}steps = tuned["gradient_accumulation_steps"]
{OPTIMIZER}
optimizer = tuned.prepare_optimizer(optimizer)
{COUNTER}
for epoch in range(epochs):
    for batch in loader:
        micro_batches += 1
        {data.batch} = tuned.to_device(batch)
        with tuned.autocast():
            loss = {data.loss}
        scaler.scale(loss / steps).backward()
        if micro_batches % steps == 0:
            {f"{chr(10)}{' ' * 12}".join(_updating(update, scaled=True))}"""


def _own(found: Recipe) -> tuple[str, ...]:
    steps = found.accumulation_steps
    backward = "loss.backward()" * (found.data.own_training == OWN_STEP)  # whose optimizers have none without autotune
    return kept(
        found.data,
        batch=found.batch,
        context=f"with {', '.join(found.contexts)}:" * bool(found.contexts),
        backward="scaler.scale(loss).backward()" if found.scaler else backward,
        update=SCALED_STEP * found.scaler,
        accumulation=f"{steps} micro-batches for each optimizer step, by the mean of their losses" * (steps > 1),
    )


def _loop(found: Recipe) -> tuple[str, ...]:
    return (COUNTER * (found.accumulation_steps > 1), *epochs(found, *_micro_batch(found)))


def _micro_batch(found: Recipe) -> tuple[str, ...]:
    """Return the lines that train on one micro-batch, with the optimizer's update after the last of a step."""
    steps, forward = found.accumulation_steps, f"loss = {found.data.loss}"
    scaled = f"loss / {steps}" if steps > 1 else "loss"
    update = _updating(found.update, scaled=found.scaler)
    passes: tuple[str, ...] = (
        *((f"with {', '.join(found.contexts)}:", f"    {forward}") if found.contexts else (forward,)),
        f"{f'scaler.scale({scaled})' if found.scaler else f'({scaled})' if steps > 1 else scaled}.backward()",
    )
    if steps == 1:
        return (*found.batch, *passes, *update)
    is_last = f"micro_batches % {steps} == 0"
    if found.rank_setup:
        known = f"is_last = {is_last}  # of a step: only then ranks exchange gradients"
        is_last, passes = "is_last", (known, *_exchanging(found, passes))
    return ("micro_batches += 1", *found.batch, *passes, f"if {is_last}:", *(f"    {line}" for line in update))


def _updating(names: Collection[str], *, scaled: bool) -> tuple[str, ...]:
    """Return the lines that update the weights at the end of a step, with the parts of it that the target has."""
    clipping = (*("scaler.unscale_(optimizer)",) * scaled, CLIPPING) if "clip_grad_norm" in names else ()
    stepping = ("scaler.step(optimizer)", "scaler.update()") if scaled else ("optimizer.step()",)
    parts = {"scheduler": "step() of your scheduler", "ema": "update_parameters(model) of your ema"}
    follow = " and ".join(text for name, text in parts.items() if name in names)
    unless = ", unless the scaler skipped this step" * scaled
    return (*clipping, *stepping, "optimizer.zero_grad()", *(f"# here {follow}{unless}",) * bool(follow))


def _exchanging(found: Recipe, passes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the passes of a micro-batch, in which ranks exchange gradients if it is the last of a step."""
    if found.replicated is None:
        return ("model.set_requires_gradient_sync(is_last)", *passes)
    records = found.exchanges_first
    first = ("exchanges = is_last or micro_batches == 1  # the first records the static graph",) * records
    context = f"with contextlib.nullcontext() if {'exchanges' if records else 'is_last'} else model.no_sync():"
    return (*first, context, *(f"    {line}" for line in passes))
