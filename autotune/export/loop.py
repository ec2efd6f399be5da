"""The recommendation as a plain PyTorch loop: one that needs no autotune, and the shorter one that uses it."""

from __future__ import annotations

from autotune.core.records import TargetFacts
from autotune.export.data import call, data_of
from autotune.export.recipe import OPTIMIZER, Recipe, assembled, epochs, loader
from autotune.harmless import python
from autotune.knobs.static_graph import StaticGraph

DATA_LOADER = "from torch.utils.data import DataLoader"
# As when measured. Dropped at each epoch's end, a whole epoch without one step would go unnoticed.
COUNTER = "micro_batches = 0  # over all epochs: a rest is part of the next step"


def text(found: Recipe) -> str:
    """Python about `model`, `dataset`, `loss_fn`, `optimizer` and `epochs`, and what else the target's file brings."""
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
        COUNTER * (found.accumulation_steps > 1),
        *epochs(found, *_micro_batch(found)),
    )


def with_autotune(study: str, facts: TargetFacts | None) -> str:
    """Return a loop around `autotune.apply(study)`, as the page shows it: the same lines for every answer."""
    data = data_of(facts)
    options = {name: f"tuned[{python(name)}]" for name in ("batch_size", "num_workers")}
    made = data.loader(options, spread="tuned.dataloader_kwargs()")
    imports = "import autotune" + f"\n{DATA_LOADER}" * ("DataLoader(" in made)
    return f"""{imports}

tuned = autotune.apply({python(study)})
{made}
model = tuned.prepare(model)
scaler = tuned.grad_scaler()
steps = tuned["gradient_accumulation_steps"]
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
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()"""


def _micro_batch(found: Recipe) -> tuple[str, ...]:
    """Return the lines that train on one micro-batch, with the optimizer's update after the last of a step."""
    steps, forward = found.accumulation_steps, f"loss = {found.data.loss}"
    scaled = f"loss / {steps}" if steps > 1 else "loss"
    update = ("scaler.step(optimizer)", "scaler.update()") if found.scaler else ("optimizer.step()",)
    update = (*update, "optimizer.zero_grad()")
    return (
        *("micro_batches += 1",) * (steps > 1),
        *(f"{_exchange(found)}  # gradients, once in a step",) * (steps > 1 and bool(found.rank_setup)),
        *found.batch,
        *((f"with {', '.join(found.contexts)}:", f"    {forward}") if found.contexts else (forward,)),
        f"{f'scaler.scale({scaled})' if found.scaler else f'({scaled})' if steps > 1 else scaled}.backward()",
        *((f"if micro_batches % {steps} == 0:", *(f"    {line}" for line in update)) if steps > 1 else update),
    )


def _exchange(found: Recipe) -> str:
    """Return the statement by which ranks exchange gradients after the last micro-batch of a step alone."""
    is_last = f"micro_batches % {found.accumulation_steps} == 0"
    if found.replicated is None:
        return f"model.set_requires_gradient_sync({is_last})"
    is_first = "micro_batches == 1 or " * bool(found.replicated.get(StaticGraph.name))  # in which the graph is recorded
    return f"model.require_backward_grad_sync = {is_first}{is_last}"
