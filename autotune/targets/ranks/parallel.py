"""One model trained by several ranks: it is wrapped, and told which micro-batches end with an exchange.

    "ddp"    every rank has all of the model; gradients are averaged while the backward pass goes on
    "zero2"  each has a share of weights, gradients and optimizer state; weights are gathered once for each step
    "fsdp"   the same, but weights are gathered for the forward and for the backward pass of each block, and let go

The update is that of one process with the batches of all ranks (decisions/0071). Gradients are exchanged in the last
micro-batch of an optimizer step only, which for DDP has to be known before its forward pass.

The loss of a batch is wrapped, not the model, so that a loss may call parts or methods of the model, as a
LightningModule's `training_step` (decisions/0082). A user's own `step`, which runs the backward pass itself, calls the
wrapped model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from autotune.errors import TargetError
from autotune.knobs.base import DDP, Plan
from autotune.knobs.strategy import ZERO2
from autotune.targets.checkpointing import blocks
from autotune.targets.contract import Contract
from autotune.targets.loss import Loss
from autotune.targets.ranks import world
from autotune.targets.ranks.gradient_agreement import explained

UNUSED = "find_unused_parameters"  # agreed name of a file, and DDP's argument


class OneRank:
    """The model of one rank, or of ranks that the user's own code wraps: it is left unchanged."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.model = self.called = model  # the user's model; the module that a user's step calls
        self.loss: Callable[[Any], Any] = partial(loss, model)  # of a batch that is trained on
        self.validation_loss: Callable[[Any], Any] = self.loss

    sync: Any = None  # called before a micro-batch's forward pass, with whether gradients are exchanged

    def everybody(self, ready: bool) -> bool:
        """Return whether all ranks are ready for work that they do together."""
        return ready

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Raise errors that only ranks have with an explanation in the user's terms."""
        yield


class _LossOf(nn.Module):
    """A module with the model's parameters, whose forward is the loss of a batch."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self._loss = model, partial(loss, model)  # a loss that is a module brings no parameters

    def forward(self, batch: Any) -> Any:
        """Return what the user's loss returns."""
        return self._loss(batch)


class Replicated(OneRank):
    """A model that every rank has, in a wrapper that averages gradients."""

    called: Any

    def __init__(self, model: nn.Module, loss: Loss, options: Mapping[str, Any], *, has_step: bool) -> None:
        """`options` are arguments of `DistributedDataParallel`; `has_step`: a user's `step` calls the model."""
        super().__init__(model, loss)
        self.called, self._has_begun = _Wrapper(model if has_step else _LossOf(model, loss), **options), False
        if not has_step:
            self.loss = self.called

    def sync(self, exchanges: bool) -> None:
        """Switch the exchange on or off, as `no_sync` does; a static graph is recorded in the first backward pass."""
        self.called.require_backward_grad_sync = exchanges or (self.called.static_graph and not self._has_begun)
        self._has_begun = True

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Name the parameters that got no gradient, where DDP waits for them."""
        try:
            yield
        except RuntimeError as error:
            group = getattr(self.called, "process_group", None)  # sharded weights have none
            if (told := explained(error, self.model, group)) is not None:
                raise told from error
            raise

    def everybody(self, ready: bool) -> bool:
        """Return whether all ranks are ready, because a backward pass waits for all of them."""
        return min(world.gathered(ready)) == 1


class Sharded(Replicated):
    """A model of which every rank has a share, sharded in place: the names of parameters stay."""

    def __init__(self, model: nn.Module, loss: Loss, plan: Plan, *, has_step: bool) -> None:
        """Share the weights among the ranks, from now on."""
        OneRank.__init__(self, model, loss)
        with torch.no_grad():  # each rank keeps a share of its own weights, so they must be equal before
            for tensor in (*model.parameters(), *model.buffers()):
                distributed.broadcast(tensor, src=0)
        for one in model.parameters():  # for example, `fully_shard` refuses weights in channels_last (torch 2.13)
            one.data = one.data.contiguous()
        mesh = _mesh(plan.device.partition(":")[0])
        if not has_step:
            self.called = self.loss = self.validation_loss = _LossOf(model, loss)
        # By default the root keeps its gathered weights, because its backward pass comes first.
        options: dict[str, Any] = {"reshard_after_forward": False} if plan.strategy == ZERO2 else {}
        for part in (*blocks(model), self.called):
            fully_shard(part, mesh=mesh, **options)

    def sync(self, exchanges: bool) -> None:
        """Reduce gradients in this micro-batch, or keep them whole on every rank until one does."""
        self.called.set_requires_gradient_sync(exchanges)


class _Wrapper(DistributedDataParallel):
    """DDP with the model's attributes, so that a user's step can still read `model.config`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


@cache
def _mesh(kind: str) -> DeviceMesh:
    return init_device_mesh(kind, (world.world().size,))


def wrapped(contract: Contract, model: nn.Module, loss: Loss, plan: Plan) -> OneRank:
    """Return the model as the ranks train it together. Raises `TargetError` for a model that they cannot train."""
    if world.world().size == 1:
        return OneRank(model, loss)
    strategy, has_step = plan.strategy or DDP, "step" in contract
    if isinstance(model, nn.DataParallel):  # by which one process would feed all devices
        model = model.module
        if not hasattr(model, "module"):  # the file's loss may call `model.module`; not registered as a part
            object.__setattr__(model, "module", model)
    _check(contract, model, strategy)
    if strategy != DDP:
        return Sharded(model, loss, plan, has_step=has_step)
    options = {**plan.parallel_options, UNUSED: finds_unused(contract)}
    return Replicated(model, loss, options, has_step=has_step)


def finds_unused(contract: Contract) -> bool:
    """Return whether the file says that a batch may leave parameters without a gradient. Raises `TargetError`."""
    value = contract.make(UNUSED, {}) if UNUSED in contract else False
    if not isinstance(value, bool):
        raise TargetError(
            f"{UNUSED} is {repr(value)[:60]}. It says whether ranks look in every step for parameters that got no "
            f"gradient. Write {UNUSED} = True, or leave it out."
        )
    return value


def _check(contract: Contract, model: nn.Module, strategy: str) -> None:
    many = f"{world.world().size} ranks train {contract.label}"
    if any(isinstance(part, nn.DataParallel) for part in model.modules()):
        raise TargetError(
            f"{many}, and a part of model() is a torch.nn.DataParallel, which is one process with all devices. It "
            f"would copy the model to every device once more in each of them. Return the module that is in it."
        )
    if any(isinstance(part, DistributedDataParallel) for part in model.modules()):
        raise TargetError(
            f"{many}, and model() is wrapped in DistributedDataParallel already. Gradients would be averaged twice. "
            f"Return the module itself: autotune wraps it, by the strategy that is tried."
        )
    if "step" in contract and isinstance(model, (nn.ModuleDict, nn.ModuleList)):
        raise TargetError(
            f"{many}, and model() returned a {type(model).__name__}, which has no forward pass. Gradients are "
            f"exchanged around the forward pass of the model. Return a module whose forward calls its parts."
        )
    if strategy != DDP and "ema" in contract:
        raise TargetError(
            f"{many} by {strategy}, and the file has ema(model). Each rank has a share of the weights, and a copy of "
            f"the model to average them in cannot be made of it (torch's fully_shard refuses it). Use strategy ddp."
        )
