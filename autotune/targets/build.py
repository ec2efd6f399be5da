"""Builds one training run: the user's parts, the defaults for what is not written, the edits of the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch.nn.parameter import UninitializedParameter
from torch.optim import Optimizer

from autotune.core.records import Config
from autotune.errors import TargetError
from autotune.knobs import loader_workers
from autotune.knobs.base import Plan
from autotune.targets import data as sources
from autotune.targets import kinds
from autotune.targets.arguments import bind, takes, takes_just
from autotune.targets.base import Session
from autotune.targets.contract import Contract
from autotune.targets.counting import OwnBatches
from autotune.targets.data import Data
from autotune.targets.guesses import loss_line
from autotune.targets.loop import Training
from autotune.targets.losses import InferredLoss, Loss
from autotune.targets.own_loop import OwnLoop, OwnSession
from autotune.targets.reference import Reference
from autotune.targets.user_errors import blaming
from autotune.targets.worst_batch import worst_case


def open_session(reference: Reference, config: Config, plan: Plan, phase: Callable[[str], None]) -> Session:
    """A training run of `config`, built and on the device. Raises `TargetError`, and memory errors as they come."""
    offered = common_arguments(config, plan.device)
    for prepare in plan.setup:
        prepare()
    found = kinds.load(reference, offered, phase)
    if isinstance(found, OwnLoop):
        plan.short_cycles = False  # it takes optimizer steps where it wants to: its cycles are the real ones
        found.build(config, plan)
        return OwnSession(found)
    run_setup(found, offered)
    return assemble(found, sources.find(found, offered), plan, offered)


def common_arguments(config: Config, device: str) -> dict[str, Any]:
    """What every function of the user may ask for."""
    return {
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
    """Model, loader, loss and optimizer put together as `plan` says."""
    original = _model(contract, offered)
    with blaming(f"model().to({plan.device!r})", contract.root):
        model: Any = original.to(plan.device).train()
    for transform in plan.model_transforms:
        model = transform(model)
    validation = None
    if "validation" in contract:
        held_out = sources.held_by(contract, "validation", offered)
        validation = sources.validation_source(contract, held_out, plan, original)
    source = sources.training_source(contract, data, plan, offered, original)
    return Training(
        plan=plan,
        model=model,
        source=source,
        worst=worst_case(contract, data, source, offered),
        validation=validation,
        loss=_loss(contract, offered),
        make_optimizer=_optimizer(contract, model, offered),
        count_samples=_count(contract, data, offered),
        loads=data.kind != "batch",
        label=contract.label,
    )


def default_optimizer(parameters: list[torch.nn.Parameter], batch: Any) -> Optimizer:
    """What most people train with: AdamW for dictionaries (language models), SGD with momentum for the rest.

    The choice matters because AdamW keeps two numbers for every parameter and momentum one. Learning rates are low
    enough for most models to learn and not to diverge, which would be held against the configuration.
    """
    if isinstance(batch, Mapping):
        return torch.optim.AdamW(parameters, lr=1e-4)
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def _model(contract: Contract, offered: Mapping[str, Any]) -> torch.nn.Module:
    model = contract.make("model", offered)
    if not isinstance(model, torch.nn.Module):
        raise TargetError(f"model() returned a {type(model).__name__}{_several(model, torch.nn.Module)}")
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


_ONE = {
    torch.nn.Module: "return an nn.Module.",
    Optimizer: "return one torch.optim.Optimizer, such as torch.optim.AdamW(params).",
}


_TO_WRITE = {  # by what there are several of
    torch.nn.Module: (
        "Parts that one loss trains belong into one module: return nn.ModuleDict({...}). Of models that are trained by "
        "turns, as in a GAN, return the one that takes most of the time."
    ),
    Optimizer: (
        "For other settings of some parameters write one with groups, from optimizer(model): torch.optim.AdamW(["
        "{'params': model.body.parameters(), 'lr': 1e-4}, {'params': model.head.parameters(), 'lr': 1e-3}]). Of those "
        "that step by turns, as in a GAN, return that of the model that takes most of the time."
    ),
}


def _several(returned: Any, kind: type) -> str:
    """What to return instead of `returned`, which is no `kind` but may hold several."""
    parts = returned.values() if isinstance(returned, Mapping) else returned
    held = sum(isinstance(part, kind) for part in parts) if isinstance(returned, Mapping | list | tuple) else 0
    if held < 2:
        return f": {_ONE[kind]}"
    return f" of {held}. autotune supports one model with one optimizer and one loss. {_TO_WRITE[kind]}"


def _loss(contract: Contract, offered: Mapping[str, Any]) -> Loss:
    if "loss" not in contract:
        return InferredLoss(instead=_loss_that_is_meant(contract))
    advice = "It is called loss(model, batch): write these two arguments, and unpack inside: x, y = batch."
    written = contract.names["loss"]
    function = bind(written, "loss", {*offered, "model", "batch"}, advice=advice)
    if takes_just(written, "model", "batch"):  # called as it is: handing arguments over takes 2 us of every step
        return cast(Loss, written)
    return lambda model, batch: function(**offered, model=model, batch=batch)


def _loss_that_is_meant(contract: Contract) -> str:
    """Why no loss is inferred, where the file has one under another name; empty if it has none."""
    criterion = contract.unread.get("loss")
    if criterion is None:
        return ""
    return contract.left_out("loss", "a loss inferred instead could be another than yours", loss_line(criterion))


def _optimizer(contract: Contract, model: torch.nn.Module, offered: Mapping[str, Any]) -> Callable[[Any], Optimizer]:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if "optimizer" not in contract:
        return lambda batch: default_optimizer(parameters, batch)
    arguments = {**offered, "params": parameters, "model": model}
    optimizer = contract.make("optimizer", arguments, sole="params")
    if not isinstance(optimizer, Optimizer):
        raise TargetError(f"optimizer() returned a {type(optimizer).__name__}{_several(optimizer, Optimizer)}")
    return lambda batch: optimizer


def _count(contract: Contract, data: Data, offered: Mapping[str, Any]) -> Callable[[Any], int]:
    size = int(offered["batch_size"])
    if "samples" not in contract:
        if data.dataset is not None:  # batches are cut here, and whole: nodes of graphs or time steps may come first
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
