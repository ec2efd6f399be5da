"""Builds one training run from the user's parts, defaults for missing parts, and the changes of the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch.nn.parameter import UninitializedParameter

from autotune.core.records import Config
from autotune.errors import TargetError
from autotune.knobs import declared_values, loader_workers
from autotune.knobs.base import Plan
from autotune.targets import data as sources
from autotune.targets import kinds, optimizer_implementations, optimizers, update
from autotune.targets.base import Session
from autotune.targets.contract import NAMES, Contract
from autotune.targets.counting import OwnBatches
from autotune.targets.data import Data
from autotune.targets.guesses import loss_line
from autotune.targets.loop import Training
from autotune.targets.loss import InferredLoss, Loss
from autotune.targets.named_arguments import bind, takes, takes_just
from autotune.targets.own_loop import OwnLoop, OwnSession
from autotune.targets.own_step import OwnStep
from autotune.targets.ranks import parallel, world
from autotune.targets.reference import TargetPlace
from autotune.targets.user_errors import blaming
from autotune.targets.worst_batch import worst_case


def open_session(reference: TargetPlace, config: Config, plan: Plan, phase: Callable[[str], None]) -> Session:
    """Return a training run of `config`, built and on the device. Raises `TargetError`, and memory errors unchanged."""
    offered = common_arguments(config, plan.device)
    for prepare in plan.setup:
        prepare()
    world.join(plan.device)  # before the user's code, which may ask for its rank
    found, _ = kinds.load(reference, offered, phase)
    if isinstance(found, OwnLoop):
        plan.short_cycles = False  # it decides itself when to take optimizer steps, so its cycles are the real ones
        found.build(config, plan)
        return OwnSession(found)
    run_setup(found, offered)
    return assemble(found, sources.find(found, offered), plan, offered)


def common_arguments(config: Config, device: str) -> dict[str, Any]:
    """Return the arguments that every function of the user may ask for, by name."""
    return {
        **declared_values(config.values),
        "batch_size": config.batch_size,
        "num_workers": loader_workers(config),
        "device": device,
        "knobs": dict(config.values),
    }


def run_setup(contract: Contract, offered: Mapping[str, Any]) -> None:
    """Call the user's `setup`, if there is one."""
    if "setup" in contract:
        contract.run("setup", offered)


def assemble(contract: Contract, data: Data, plan: Plan, offered: Mapping[str, Any]) -> Training:
    """Return model, loader, loss and optimizer as one training run, changed as `plan` says."""
    original = _model(contract, offered)
    with blaming(f"model().to({plan.device!r})", contract.root):
        model: Any = original.to(plan.device).train()
    for transform in plan.model_transforms:
        model = transform(model)
    loss = _loss(contract, offered)
    together = parallel.wrapped(contract, model, loss, plan)
    validation = None
    if "validation" in contract and says_loss(contract):
        held_out = sources.read_dataset(contract, "validation", offered)
        validation = sources.validation_source(contract, held_out, plan, original)
    source = sources.training_source(contract, data, plan, offered, original)
    return Training(
        plan=plan,
        model=model,
        source=source,
        worst=worst_case(contract, data, source, offered),
        validation=validation,
        loss=loss,
        make_optimizers=_optimizers(contract, model, plan, offered),
        make_update=update.update_maker(contract, model, offered),
        parallel=together,
        own_step=OwnStep(contract, together.called, plan, offered) if "step" in contract else None,
        count_samples=_count(contract, data, offered),
        loads=data.kind != "batch",
        label=contract.label,
    )


def _optimizers(
    contract: Contract, model: torch.nn.Module, plan: Plan, offered: Mapping[str, Any]
) -> optimizers.Optimizers:
    """Return the user's optimizers, with the implementation that the plan says."""
    make = optimizers.optimizers_maker(contract, model, offered)

    def made(batch: Any) -> list[torch.optim.Optimizer]:
        found = make(batch)
        optimizer_implementations.choose(found, plan.optimizer_options)
        return found

    return made


def says_loss(contract: Contract) -> bool:
    """Return whether the loss of a batch can be computed outside of a step; False if only `step` computes it."""
    return "loss" in contract or "step" not in contract


def _model(contract: Contract, offered: Mapping[str, Any]) -> torch.nn.Module:
    model = contract.make("model", offered)
    if not isinstance(model, torch.nn.Module):
        raise TargetError(f"model() returned a {type(model).__name__}{_several(model)}")
    lazy = [name for name, parameter in model.named_parameters() if isinstance(parameter, UninitializedParameter)]
    if lazy:
        raise TargetError(
            f"model() returned a {type(model).__name__} whose {lazy[0]} has no shape yet. Lazy modules get theirs from "
            f"the first batch, after the optimizer wants it. Run one batch through it in model()."
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise TargetError(
            f"model() returned a {type(model).__name__} without a trainable parameter. All are frozen, or there are "
            f"none. Leave requires_grad on for what is to be trained."
        )
    return model


def _several(returned: Any) -> str:
    """Return advice on what to return instead of `returned`, which is not a model but may contain several."""
    parts = returned.values() if isinstance(returned, Mapping) else returned
    is_collection = isinstance(returned, Mapping | list | tuple)
    models = sum(isinstance(part, torch.nn.Module) for part in parts) if is_collection else 0
    if models < 2:
        return ": return an nn.Module."
    return (
        f" of {models}. autotune trains one module. Parts of it may have several losses and optimizers: return "
        f"nn.ModuleDict({{...}}), and write {NAMES['step']} where one loss does not train them all, as in a GAN."
    )


def _loss(contract: Contract, offered: Mapping[str, Any]) -> Loss:
    if "loss" not in contract:
        return InferredLoss(instead=_loss_that_is_meant(contract))
    advice = "It is called loss(model, batch): write these two arguments, and unpack inside: x, y = batch."
    written = contract.names["loss"]
    function = bind(written, "loss", {*offered, "model", "batch"}, advice=advice)
    if takes_just(written, "model", "batch"):  # called directly: selecting arguments takes 2 us of every step
        return cast(Loss, written)
    return lambda model, batch: function(**offered, model=model, batch=batch)


def _loss_that_is_meant(contract: Contract) -> str:
    """Return why no loss is inferred, where the file has one under another name; empty if it has none."""
    criterion = contract.unread.get("loss")
    if criterion is None:
        return ""
    return contract.left_out("loss", "a loss inferred instead could be another than yours", loss_line(criterion))


def _count(contract: Contract, data: Data, offered: Mapping[str, Any]) -> Callable[[Any], int]:
    size = int(offered["batch_size"])
    if "samples" not in contract:
        if data.dataset is not None:  # our loader cuts whole batches, whatever the first dimension means
            return lambda batch: size
        asked = contract.names[contract.data]
        return OwnBatches(contract.data, size, is_told=takes(asked, "batch_size") or takes(asked, "knobs"))
    function = bind(contract.names["samples"], "samples", {*offered, "batch"}, sole="batch")

    def count(batch: Any) -> int:
        samples = function(**offered, batch=batch)
        try:
            return int(samples)
        except (TypeError, ValueError) as error:
            raise TargetError(
                f"samples(batch) returned a {type(samples).__name__}. It counts the samples of one batch, and probably "
                f"returns something else, or forgets return. Return a whole number."
            ) from error

    return count
