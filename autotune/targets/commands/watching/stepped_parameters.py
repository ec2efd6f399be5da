"""Checksums of the parameters that one rank of a command steps, which are compared with those of the other ranks.

    step 1 ─► whatever makes ranks equal after a step (ZeroRedundancyOptimizer, a broadcast) ─► step 2 begins: checksums

Only in pure data parallelism all ranks must have the same parameters: in `DistributedDataParallel` over all ranks, with
no communication hook, which may average later, and with no `FullyShardedDataParallel`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from autotune.core.records import SteppedParameter
from autotune.targets.commands.distributed import world_size
from autotune.targets.live_modules import live_modules, parameter_names
from autotune.targets.ranks.gradient_agreement import tensor_checksum

_SHARDED = "FullyShardedDataParallel"  # of torch, and of FairScale
_NOT_AVERAGED = "_ddp_params_and_buffers_to_ignore"  # a module's names that DDP leaves to each rank (torch 2.13)


class SteppedParameters:
    """Watches the optimizers of one rank until one of them begins its second step; with one rank, nothing."""

    def __init__(self) -> None:
        self.seen: tuple[SteppedParameter, ...] = ()
        self._optimizers: dict[int, Optimizer] = {}  # that have stepped, by identity
        self._parameters: dict[int, Tensor] = {}  # that these train, by identity
        self._with_gradient: set[int] = set()
        self._depth = 0  # an optimizer's step may call another's, in the midst of which ranks may differ

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch until the `with` block ends."""
        with ExitStack() as stack:
            if world_size() > 1:
                stack.callback(register_optimizer_step_pre_hook(self._begin).remove)
                stack.callback(register_optimizer_step_post_hook(self._end).remove)
            yield

    def are_comparable(self) -> bool:
        """Return whether all ranks must have the same parameters. To be asked after the first step."""
        if world_size() == 1:
            return False
        modules = live_modules()
        parallel = [one for one in modules if isinstance(one, DistributedDataParallel)]
        return (
            bool(parallel)
            and all(one.process_group.size() == world_size() and not one._comm_hooks for one in parallel)
            and all(type(one).__name__ != _SHARDED for one in modules)
        )

    def _begin(self, optimizer: Optimizer, *_: Any) -> None:
        if self._depth == 0 and not self.seen and id(optimizer) in self._optimizers and self.are_comparable():
            self.seen = tuple(self._checksums())
        self._depth += 1

    def _end(self, optimizer: Optimizer, *_: Any) -> None:
        self._depth -= 1
        if self._depth or self.seen:
            return
        self._optimizers[id(optimizer)] = optimizer
        for one in (one for group in optimizer.param_groups for one in group["params"] if one.requires_grad):
            self._parameters[id(one)] = one
            if one.grad is not None:
                self._with_gradient.add(id(one))

    def _checksums(self) -> Iterator[SteppedParameter]:
        modules, ignored = live_modules(), set[int]()
        for module in modules:
            of_ranks = getattr(module, _NOT_AVERAGED, ())  # of the module or of its class, as DDP itself reads it
            ignored |= {id(one) for name, one in module.named_parameters() if name in of_ranks} if of_ranks else set()
        parallel = (one for one in modules if isinstance(one, DistributedDataParallel))
        wrapped, names = {id(part) for one in parallel for part in one.parameters()}, parameter_names(modules)
        for number, (key, one) in enumerate(self._parameters.items()):
            # What no module has is made for a batch, as a perturbation of it, and is another on each rank.
            is_compared = key in self._with_gradient and key in names and key not in ignored
            is_compared &= type(one) in (Tensor, nn.Parameter)
            yield SteppedParameter(
                name=names.get(key, f"parameter {number} of shape {tuple(one.shape)}"),
                shape=tuple(one.shape),
                checksum=tensor_checksum(one) if is_compared else None,
                is_wrapped=key in wrapped,
            )
