"""Finds out what a target is by building it and taking one real optimizer step; says what was inferred."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.optim import Optimizer

from autotune.errors import TargetError
from autotune.knobs import KNOBS, defaults
from autotune.knobs.base import Plan
from autotune.records import Config, Finding, StepFacts, TargetFacts, Value
from autotune.targets import contract as contracts
from autotune.targets import data as sources
from autotune.targets.arguments import takes
from autotune.targets.base import Command, Step
from autotune.targets.batches import describe, layout
from autotune.targets.blame import blaming
from autotune.targets.build import assemble, common_arguments, run_setup
from autotune.targets.checkpointing import checkpointable_blocks
from autotune.targets.contract import Contract
from autotune.targets.counting import OwnBatches
from autotune.targets.data import Data
from autotune.targets.loop import Training
from autotune.targets.losses import InferredLoss
from autotune.targets.reference import Reference
from autotune.targets.settings import Settings, read_settings

_IMAGE_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)  # channels_last is a format of four dimensions
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def inspect(reference: Reference, device: str, config: Config | None, phase: Callable[[str], None]) -> TargetFacts:
    """All that the search needs to know about the target, after one step of `config` or of the target's baseline.

    Raises `TargetError` for whatever the user has to change, and memory errors as they come.
    """
    phase("load")
    contract = contracts.load(reference, common_arguments(config or Config(values=defaults()), device))
    settings = read_settings(contract)
    values = defaults() | (settings.baseline or {}) if config is None else config.values
    phase("build")
    offered = common_arguments(Config(values=values), device)
    run_setup(contract, offered)
    data = sources.find(contract, offered)
    _check_global_batch(settings, data)
    if config is None and "batch_size" not in (settings.baseline or {}) and data.samples is not None:
        values["batch_size"] = min(int(values["batch_size"] or 1), data.samples)
    plan, blocks = _planned(values, device), list[int]()
    plan.model_transforms.insert(0, lambda model: _counting(model, blocks))  # before any knob changes it
    training = assemble(contract, data, plan, common_arguments(Config(values=values), device))
    phase("warm-up")
    first = _FirstStep()
    facts = _take_step(training, first, contract)
    _confirm_count(contract, data, training, values, phase)
    modules = list(training.model.modules())
    return TargetFacts(
        name=_name(training.model, reference),
        parameter_count=sum(parameter.numel() for parameter in training.model.parameters()),
        has_convolution=any(isinstance(module, _IMAGE_CONVOLUTIONS) for module in modules),
        has_batch_norm=any(isinstance(module, _BATCH_NORMS) for module in modules),
        data=data.kind,
        dataset_samples=data.samples,
        baseline=settings.baseline,
        space=settings.space,
        global_batch_size=settings.global_batch_size,
        has_validation=training.validation is not None,
        takes_workers=_takes_workers(contract, data),
        has_collate="collate" in contract,
        has_sampler="sampler" in contract,
        batch_layout=layout(first.batch),
        checkpointable_blocks=blocks[0],
        findings=_findings(contract, data, training, first, facts),
        step=facts,
    )


def _counting(model: nn.Module, blocks: list[int]) -> nn.Module:
    blocks.append(checkpointable_blocks(model))
    return model


def _name(model: nn.Module, reference: Reference) -> str:
    """The model's class, or the target's name where the class is a mere container."""
    return reference.label.removesuffix(".py") if type(model) is nn.Sequential else type(model).__name__


@dataclass
class _FirstStep:
    """A watch that lets one optimizer step happen, and remembers what went in."""

    batch: Any = None
    steps: list[Step] = field(default_factory=list)

    def __str__(self) -> str:
        if self.batch is None:
            return "the first training step"
        return f"the first training step, on a batch of {describe(self.batch)}"

    def first_batch(self, seconds: float) -> None:
        """Not asked here."""

    def epoch(self) -> None:
        """Not asked here."""

    def step(self, step: Step) -> Command:
        """One is enough."""
        self.steps.append(step)
        return Command.STOP

    def micro_batch(self) -> None:
        """Not asked here."""

    def loaded(self, samples: int) -> Command:
        """Not asked here."""
        return Command.STOP

    def remembering(self, source: sources.Source) -> sources.Source:
        """`source`, whose first batch is kept (on the host, as it was loaded)."""

        def epoch() -> Iterator[Any]:
            for batch in source():
                if self.batch is None:
                    self.batch = batch
                yield batch

        return epoch


def _take_step(training: Training, first: _FirstStep, contract: Contract) -> StepFacts:
    trainable: list[Any] = [parameter for parameter in training.model.parameters() if parameter.requires_grad]
    reached: set[int] = set()
    hooks = [
        parameter.register_post_accumulate_grad_hook(lambda reached_now: reached.add(id(reached_now)))
        for parameter in trainable
    ]
    training.source = first.remembering(training.source)
    with blaming(first, contract.root):
        began = time.perf_counter()
        training.train(first)
        loss = float(first.steps[0].loss)  # waits for the device
        seconds = time.perf_counter() - began
        training.validate(1)
    for hook in hooks:
        hook.remove()
    return StepFacts(
        loss=loss if math.isfinite(loss) else None,
        seconds=seconds,
        parameters_with_gradient=len(reached),
        trainable_parameters=len(trainable),
    )


def _confirm_count(
    contract: Contract, data: Data, training: Training, values: dict[str, Value], phase: Callable[[str], None]
) -> None:
    """A dimension may have the size asked for by chance: ask for a batch of another one. Raises `TargetError`."""
    count = training.count_samples
    if not isinstance(count, OwnBatches) or not count.is_told or not count.can_be_seen:
        return
    phase("build")  # the loader once more, which may take as long again
    size = int(values["batch_size"] or 1)
    other = size // 2 or 2
    changed = values | {"batch_size": other}
    plan = _planned(changed, training.plan.device)
    offered = common_arguments(Config(values=changed), plan.device)
    try:
        with blaming(f"{contract.data}(batch_size={other})", contract.root):
            source = sources.training_source(contract, data, plan, offered, training.model)
            batch = next(iter(source()), None)
            if batch is None:
                raise TargetError("the loader gave no batch")
    except TargetError as error:
        said = (
            f"{str(error).removesuffix('.')}. {contract.data}() was asked for batches of {other} after {size}, to see "
            f"which dimension is that of the samples. Make it give other sizes too, or write samples(batch)."
        )
        raise TargetError(said, traceback=error.traceback) from error
    count.confirm(batch, other)


def _planned(values: Mapping[str, Value], device: str) -> Plan:
    plan = Plan(device=device)
    for knob in KNOBS:  # without workers: one batch does not pay for starting them
        knob.apply(0 if knob.counts_workers else values[knob.name], plan)
    plan.accumulation_steps = min(
        plan.accumulation_steps, 2
    )  # one that starts from no gradient, and one that adds to it
    for prepare in plan.setup:
        prepare()
    return plan


def _check_global_batch(settings: Settings, data: Data) -> None:
    held = settings.global_batch_size
    if held is not None and data.samples is not None and data.samples < held:
        raise TargetError(
            f"dataset has {data.samples} samples, the held global batch is {held}. One optimizer step would need more "
            f"than an epoch. Lower --global-batch or global_batch_size in the file."
        )


def _findings(
    contract: Contract, data: Data, training: Training, first: _FirstStep, facts: StepFacts
) -> tuple[Finding, ...]:
    count = sum(parameter.numel() for parameter in training.model.parameters())
    loss = training.loss
    inferred_optimizer = "optimizer" not in contract
    shown = "not finite" if facts.loss is None else f"{facts.loss:.4g}"
    gradients = f"{facts.parameters_with_gradient} of {facts.trainable_parameters} parameter tensors got a gradient"
    found = [
        Finding(name="model", text=f"{type(training.model).__name__}, {count:,} parameters"),
        Finding(name="data", text=f"{data.description}; a batch is {describe(first.batch)}"),
        Finding(
            name="loss",
            text=loss.explanation + _not_read(contract, "loss"),
            inferred=True,
            override=contracts.NAMES["loss"],
        )
        if isinstance(loss, InferredLoss)
        else Finding(name="loss", text=contracts.NAMES["loss"]),
        Finding(
            name="optimizer",
            text=_optimizer_text(training.optimizer) + _not_read(contract, "optimizer"),
            inferred=inferred_optimizer,
            override=contracts.NAMES["optimizer"] if inferred_optimizer else "",
        ),
    ]
    if "validation" in contract:
        found.append(Finding(name="validation", text="one batch evaluated; its memory will count"))
    if not _takes_workers(contract, data):
        line = contracts.NAMES["dataloader"]
        found.append(Finding(name="workers", text="not tuned: dataloader() takes no num_workers", override=line))
    found += _samples(contract, training, first)
    found += _unread(contract, data)
    found += _worst(contract, data)
    found.append(Finding(name="step", text=f"one optimizer step: loss {shown}, {gradients}"))
    return tuple(found)


def _samples(contract: Contract, training: Training, first: _FirstStep) -> list[Finding]:
    """What the samples of a batch are counted by. Nothing is said of batches that are cut here."""
    line, count = contracts.NAMES["samples"], training.count_samples
    if isinstance(count, OwnBatches):
        text, follows = count.explanation(first.batch), count.is_told or "setup" in contract  # which may tell it
        if not follows:
            text += f"; {contract.data}() takes no batch_size, so other sizes will be refused"
        return [Finding(name="samples", text=text, inferred=not (count.is_plain and follows), override=line)]
    if "samples" not in contract:
        return []
    return [Finding(name="samples", text=f"{count(first.batch):,} in a batch, by {line}")]


def _unread(contract: Contract, data: Data) -> list[Finding]:
    """What the file has under other names than agreed, and so is left out."""
    found = []
    for name, used in (("sampler", "shuffled"), ("validation", "none"), ("baseline", "assumed")):
        if name in contract.unread and (name != "sampler" or data.kind == "dataset"):
            own = contract.unread[name].name
            line = f'{{"batch_size": {own}}}' if name == "baseline" and own != name else own
            text = used + _not_read(contract, name)
            found.append(Finding(name=name, text=text, inferred=True, override=f"{name} = {line}"))
    return found


def _not_read(contract: Contract, name: str) -> str:
    return f"; {contract.unread[name].name} is not read" if name in contract.unread else ""


def _takes_workers(contract: Contract, data: Data) -> bool:
    return data.kind != "dataloader" or takes(contract.names["dataloader"], "num_workers")


def _worst(contract: Contract, data: Data) -> list[Finding]:
    """How the memory of the largest batch will be known. Nothing is said of a synthetic one, which is always the same.

    Whether shapes vary, one batch does not tell.
    """
    line = contracts.NAMES["worst_batch"]
    if "worst_batch" in contract:
        return [Finding(name="worst batch", text=f"{line}, trained on in every probe; its memory will count")]
    if data.kind == "batch":
        return []
    text = "the longest samples" if data.kind == "dataset" else "not known"
    return [Finding(name="worst batch", text=f"{text}, where shapes vary", override=line)]


def _optimizer_text(optimizer: Optimizer | None) -> str:
    assert optimizer is not None  # a step has been taken
    settings = []
    for name in ("lr", "momentum"):
        values = dict.fromkeys(str(group[name]) for group in optimizer.param_groups if name in group)
        if values:
            settings.append(f"{name}={' and '.join(values)}")
    return f"{type(optimizer).__name__}({', '.join(settings)})"
