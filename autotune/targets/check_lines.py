"""The lines of `check` about a target: each part, and whether it was written or inferred."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

from autotune.core.records import CheckLine, StepFacts
from autotune.targets import contract as contracts
from autotune.targets.batches import describe
from autotune.targets.contract import Contract
from autotune.targets.counting import OwnBatches
from autotune.targets.data import LOADER_KNOBS, Data
from autotune.targets.live_modules import class_name
from autotune.targets.loop import Training
from autotune.targets.loss import InferredLoss
from autotune.targets.named_arguments import takes, takes_option
from autotune.targets.update import Update

REPEATED = (  # https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset
    "each would iterate over all of the data, so that N workers give every sample N times: let __iter__ take its share "
    "by torch.utils.data.get_worker_info(). Until then more than one is searched only if --workers asks for it"
)


def check_lines(
    contract: Contract, data: Data, training: Training, batch: Any, facts: StepFacts, *, is_shared_out: bool
) -> tuple[CheckLine, ...]:
    """Return the parts of `training`, after its first step on `batch`.

    `is_shared_out`: the data asked for the number of its loader worker when iterated, so each can take its share.
    """
    count = sum(parameter.numel() for parameter in training.model.parameters())
    inferred_optimizer = "optimizer" not in contract
    found = [
        CheckLine(name="model", text=f"{class_name(training.model)}, {count:,} parameters"),
        CheckLine(name="data", text=f"{data.description}; a batch is {describe(batch)}"),
        _loss(contract, training),
        CheckLine(
            name="optimizer",
            text=_optimizer_text(contract, training.update) + _not_read(contract, "optimizer"),
            inferred=inferred_optimizer,
            override=contracts.NAMES["optimizer"] if inferred_optimizer else "",
        ),
    ]
    found += _update(training)
    if training.validation is not None:
        found.append(CheckLine(name="validation", text="one batch evaluated; its memory will count"))
    elif "validation" in contract:
        text = "not run: step() does not define the loss of a batch that is not trained on"
        found.append(CheckLine(name="validation", text=text, override=contracts.NAMES["loss"], needs_attention=True))
    if not takes_workers(contract, data):
        line = contracts.NAMES["dataloader"]
        found.append(CheckLine(name="workers", text="not tuned: dataloader() takes no num_workers", override=line))
    if data.kind == "iterable" and not is_shared_out:
        found.append(CheckLine(name="workers", text=REPEATED, needs_attention=True))
    found += _samples(contract, training, batch)
    found += _unread(contract, data)
    found += _worst(contract, data)
    return (*found, *contract.notes, step_line(facts))


def step_line(facts: StepFacts) -> CheckLine:
    """Return the line about the first optimizer step."""
    shown = "not finite" if facts.loss is None else f"{facts.loss:.4g}"
    gradients = f"{facts.parameters_with_gradient} of {facts.trainable_parameters} parameter tensors got a gradient"
    return CheckLine(name="step", text=f"one optimizer step: loss {shown}, {gradients}")


def _samples(contract: Contract, training: Training, batch: Any) -> list[CheckLine]:
    """Return how the samples of a batch are counted; empty for batches of our own loader."""
    line, count = contracts.NAMES["samples"], training.count_samples
    if isinstance(count, OwnBatches):
        text, follows = count.explanation(batch), count.is_told or "setup" in contract  # which may tell it
        if not follows:
            text += f"; {contract.data}() takes no batch_size, so other sizes will be refused"
        return [CheckLine(name="samples", text=text, inferred=not (count.is_plain and follows), override=line)]
    if "samples" not in contract:
        return []
    return [CheckLine(name="samples", text=f"{count(batch):,} in a batch, by {line}")]


def _unread(contract: Contract, data: Data) -> list[CheckLine]:
    """Return lines about parts of the file that are not used, because their names are not the agreed ones."""
    found = []
    for name, used in (("sampler", "shuffled"), ("validation", "none"), ("baseline", "assumed")):
        if name in contract.unread and (name != "sampler" or data.kind == "dataset"):
            own = contract.unread[name].name
            line = f'{{"batch_size": {own}}}' if name == "baseline" and own != name else own
            text = used + _not_read(contract, name)
            found.append(CheckLine(name=name, text=text, inferred=True, override=f"{name} = {line}"))
    return found


def _not_read(contract: Contract, name: str) -> str:
    return f"; {contract.unread[name].name} is not read" if name in contract.unread else ""


def takes_workers(contract: Contract, data: Data) -> bool:
    """Return whether the number of loader workers can be chosen."""
    return data.kind != "dataloader" or takes(contract.names["dataloader"], "num_workers")


def loader_options(contract: Contract, data: Data) -> tuple[str, ...] | None:
    """Return the DataLoader options that the target's own loader takes; None: the loader is ours and takes all."""
    if data.kind != "dataloader":
        return None
    return tuple(name for name in LOADER_KNOBS if takes_option(contract.names["dataloader"], name))


def _worst(contract: Contract, data: Data) -> list[CheckLine]:
    """Return how the memory of the largest batch is found; empty for a synthetic batch, which is always the same.

    One batch does not show whether shapes vary.
    """
    line = contracts.NAMES["worst_batch"]
    if "worst_batch" in contract:
        return [CheckLine(name="worst batch", text=f"{line}, trained on in every probe; its memory will count")]
    if data.kind == "batch":
        return []
    known = data.kind == "dataset"
    text = f"{'the longest samples' if known else 'not known'}, where shapes vary"
    return [CheckLine(name="worst batch", text=text, override=line, needs_attention=not known)]


def _loss(contract: Contract, training: Training) -> CheckLine:
    loss = training.loss
    if training.own_step is not None:
        text = "what step() returns: losses, backward passes and optimizer steps are its own; accumulation stays 1"
        return CheckLine(name="loss", text=text)
    if not isinstance(loss, InferredLoss):
        return CheckLine(name="loss", text=contract.theirs.get("loss", contracts.NAMES["loss"]))
    text = loss.explanation + _not_read(contract, "loss")
    return CheckLine(name="loss", text=text, inferred=True, override=contracts.NAMES["loss"])


def _update(training: Training) -> list[CheckLine]:
    """Return lines about the other parts of an optimizer step, which are measured with it."""
    update = training.update
    assert update is not None, "a step has been taken"
    found = []
    if update.clip is not None:
        together = "of each optimizer's gradients" if training.own_step else "of all gradients together"
        found.append(CheckLine(name="clipping", text=f"the norm {together} is at most {update.clip:g}"))
    if update.schedulers:
        names = " and ".join(type(one).__name__ for one in update.schedulers)
        found.append(CheckLine(name="schedule", text=f"{names}, stepped after every optimizer step"))
    if update.averaged is not None:
        found.append(
            CheckLine(name="ema", text=f"{type(update.averaged).__name__}, updated after every optimizer step")
        )
    return found


def _optimizer_text(contract: Contract, update: Update | None) -> str:
    assert update is not None, "a step has been taken"
    origin = f" of {contract.theirs['optimizer']}" if "optimizer" in contract.theirs else ""
    return " and ".join(map(_arguments_of, update.optimizers)) + origin


def _arguments_of(optimizer: Optimizer) -> str:
    arguments = []
    for name in ("lr", "momentum"):
        values = dict.fromkeys(f"{group[name]:.4g}" for group in optimizer.param_groups if name in group)
        if values:
            arguments.append(f"{name}={' and '.join(values)}")
    return f"{type(optimizer).__name__}({', '.join(arguments)})"
