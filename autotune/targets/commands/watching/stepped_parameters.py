"""Compares the parameters that the ranks of a command step, when optimizers begin further steps.

    step 1 ─► whatever makes ranks equal after a step (ZeroRedundancyOptimizer, a broadcast) ─► step 2 begins: a look
                                 some differ, or have not moved yet ─► one more step ─► a look ─► ...

A parameter that is equal once, after it was trained, is kept equal: by DDP after each step, in local SGD after every
few steps. One that never is, over many looks, drifts. Only in pure data parallelism must all ranks have the same
parameters: in `DistributedDataParallel` over all ranks, with no communication hook, which may average later, and with
no `FullyShardedDataParallel`.

Buffers that training does not write are compared at the same looks. So they are where `fully_shard` shares out the
weights, and where the script averages gradients itself: there nothing is said of parameters, and equal ones show that
it does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

from msgspec.structs import replace
from torch import Tensor, distributed, nn
from torch.distributed import distributed_c10d
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from autotune.core.records import CheckLine, DriftingParameter, RankFacts
from autotune.targets.commands.distributed import world_size
from autotune.targets.commands.watching.own_exchanges import OwnExchanges
from autotune.targets.commands.watching.unwritten_buffers import UnwrittenBuffers
from autotune.targets.commands.watching.wrappers import Wrappers
from autotune.targets.live_modules import in_order, left_to_ranks, live_modules, outermost, parameter_names
from autotune.targets.ranks.gradient_agreement import tensor_checksum
from autotune.targets.ranks.rank_check_lines import batch_statistics
from autotune.targets.tracebacks import calling_place

# Local SGD averages after 4 to 16 steps (PyTorch's PostLocalSGDOptimizer is documented with 4), seldom after 64.
MOST_LOOKS, MOST_LOOK_SECONDS = 100, 30.0
LEAST_LOOKS, LAST_LOOK_SECONDS = 17, 120.0  # the fewest looks that refuse a training, and how long they may take
MOST_LOOKS_AT_REST = 3  # for parameters that are equal, and were not moved: the learning rate may begin at 0
ABSENCE_SECONDS = 20.0  # a rank that is so late for a look takes other steps than this one: nothing more is compared
_Cause = Literal["outside", "past the wrapper", "no_sync", "unknown"]
_Meant = Literal["", "exchanged", "part of a model"]
_MOST_STEPS_WITHOUT_LOOK = 2
_POLL_SECONDS = 0.002
_SHARDED = "FullyShardedDataParallel"  # of torch, and of FairScale


@dataclass(kw_only=True)
class _Row:
    """One parameter that is compared."""

    name: str
    tensor: Tensor
    optimizer: str  # the line that made its optimizer
    wrapper: nn.Module | None  # the `DistributedDataParallel` that has it
    is_compared: bool
    ranks: tuple[int, ...] = ()  # that had other values than rank 0 at the latest look


class SteppedParameters:
    """Watches the optimizers of one rank; with one rank, nothing."""

    def __init__(self) -> None:
        self.wrappers, self.exchanges, self._buffers = Wrappers(), OwnExchanges(), UnwrittenBuffers()
        # About the models as they train: a script goes on while facts are read.
        self.check_lines: tuple[CheckLine, ...] = ()
        self._if_one_model: tuple[CheckLine, ...] = ()  # what is true if the first look shows that
        self._places: WeakKeyDictionary[Optimizer, str] = WeakKeyDictionary()  # the lines that made optimizers
        self._optimizers: dict[int, Optimizer] = {}  # that have stepped, by identity
        self._trained: dict[int, tuple[Tensor, str]] = {}  # by identity of the parameter: with its optimizer's line
        self._before: dict[int, int] = {}  # checksums before the first step, by identity
        self._with_gradient: set[int] = set()
        self._depth = 0  # an optimizer's step may call another's, in the midst of which ranks may differ
        self._parallel: list[DistributedDataParallel] | None = None  # None: not looked for yet
        self._is_shared_out = False  # `fully_shard` shares out the weights among all ranks
        self._rows: list[_Row] = []  # that are still looked at
        self._looks, self._asked, self._began, self._is_over = 0, 0, 0.0, world_size() == 1
        self._averaged, self._joins, self._ended_early = dict[str, int](), False, False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch until the `with` block ends."""
        with ExitStack() as stack:
            if world_size() > 1:
                stack.enter_context(self.wrappers.watched())
                stack.enter_context(self.exchanges.watched())
                stack.enter_context(self._buffers.watched())
                stack.callback(setattr, Optimizer, "__init__", Optimizer.__init__)
                Optimizer.__init__ = self._making(Optimizer.__init__)  # type: ignore[method-assign]
                stack.callback(register_optimizer_step_pre_hook(self._begin).remove)
                stack.callback(register_optimizer_step_post_hook(self._end).remove)
            yield

    def needs_another_step(self) -> bool:
        """Return whether ranks are to be compared once more. To be asked after each step."""
        self._asked += 1
        if self._asked > self._looks + _MOST_STEPS_WITHOUT_LOOK:  # no optimizer of torch's takes these steps
            self._is_over = True
        return not self._is_over and self._is_compared()

    def facts(self, of_rank: RankFacts) -> RankFacts:
        """Return the facts of this rank with what was seen here."""
        return replace(
            of_rank,
            looks=self._looks,
            looks_ended_early=self._ended_early,
            drifting=(*(self._drifting(row) for row in self._rows if row.ranks), *self._buffers.drifting()),
            averaged=self._averaged,
            joins=self._joins,
            needless_searches=self.wrappers.needless_searches(),
            early_exchanges=self.wrappers.early_exchanges(),
        )

    def _making(self, original: Callable[..., None]) -> Callable[..., None]:
        def make(optimizer: Optimizer, *arguments: Any, **named: Any) -> None:
            original(optimizer, *arguments, **named)
            self._places[optimizer] = calling_place(sys._getframe(1))

        return make

    def _wrappers_of_all(self) -> list[DistributedDataParallel]:
        """Return the wrappers of all ranks; none if ranks need not have the same parameters."""
        if self._parallel is None:
            modules = live_modules()
            found = [one for one in modules if isinstance(one, DistributedDataParallel)]
            is_pure = all(one.process_group.size() == world_size() and not one._comm_hooks for one in found)
            is_pure &= all(type(one).__name__ != _SHARDED for one in modules)
            self._parallel = found if is_pure else []
            self._joins = any(one._join_config.enable for one in found)
            self._choose_buffers(modules)
            models = in_order(outermost(modules), self._trained) or found
            parts = {id(part): part for model in models for part in model.modules()}
            statistics = tuple(batch_statistics(parts.values(), world_size()))
            if any(one.process_group.size() > 1 for one in found) or any(_shares_out(one) for one in modules):
                self.check_lines = statistics
            elif self.exchanges.adds_up:  # or each rank has a model of its own, and only a loss is added up
                self._if_one_model = statistics
        return self._parallel

    def _choose_buffers(self, modules: Sequence[nn.Module]) -> None:
        """Compare buffers of the models that all ranks have, or may have: the first look then shows it."""
        shares = [one for one, _ in self._trained.values() if isinstance(one, DTensor)]
        meshes = [one.device_mesh for one in shares]
        # A mesh of two dimensions may have parts of a layer on each rank, with buffers of their own.
        self._is_shared_out = any(isinstance(one, FSDPModule) for one in modules) and bool(shares)
        self._is_shared_out &= all(mesh.ndim == 1 and mesh.size() == world_size() for mesh in meshes)
        if self._parallel or self._is_shared_out or (self.exchanges.adds_up and not shares):
            models = in_order(self._parallel or outermost(modules), self._trained)
            self._buffers.choose(models, left_to_ranks(modules))

    def _is_compared(self) -> bool:
        """Return whether this rank compares anything with the others. To be asked after the first step."""
        return bool(self._wrappers_of_all()) or self._buffers.are_open or bool(self._if_one_model)

    def _begin(self, optimizer: Optimizer, *_: Any) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        self.wrappers.stepping()
        if self._is_over:
            return
        if id(optimizer) in self._optimizers and self._is_compared():
            self._look()
        for one in _trained_by(optimizer) if not self._looks else ():
            self._before.setdefault(id(one), tensor_checksum(one))

    def _end(self, optimizer: Optimizer, *_: Any) -> None:
        self._depth -= 1
        if self._depth or self._looks or self._is_over:
            return
        self.exchanges.is_on = True
        self._optimizers[id(optimizer)] = optimizer
        for one in _trained_by(optimizer):
            self._trained[id(one)] = one, self._places.get(optimizer, "")
            if one.grad is not None:
                self._with_gradient.add(id(one))

    def _look(self) -> None:
        """Compare what this rank has with what the others have, and keep what has to be looked at again."""
        if not self._looks:
            self._rows, self._began = list(self._all_rows()), time.monotonic()
        own = [time.monotonic() - self._began, [self._said(row) for row in self._rows], self._buffers.said()]
        said = _of_all_ranks(self._looks, own)
        by_parameter = list(zip(*(rows for _, rows, _ in said), strict=False))
        # If ranks trained parameters of different names, nothing is compared.
        counts = {len(rows) for _, rows, _ in said}
        if len(counts) != 1 or any(len({one[0] for one in each}) > 1 for each in by_parameter):
            self._is_over, self._ended_early = True, not said
            return
        if not (self._looks or self._parallel or self._is_one_model(by_parameter)):
            self._is_over = True
            return
        self._looks += 1
        self.check_lines, self._if_one_model = self.check_lines or self._if_one_model, ()
        rows = [row for row, each in zip(self._rows, by_parameter, strict=True) if self._is_open(row, each)]
        self._rows = rows if self._parallel else []  # only a wrapper promises equal parameters
        self._buffers.compare([buffers for *_, buffers in said])
        are_open = self._buffers.are_open
        differs = any(row.ranks for row in self._rows)
        limit = MOST_LOOKS if differs else LEAST_LOOKS if are_open else MOST_LOOKS_AT_REST
        seconds = LAST_LOOK_SECONDS if self._looks < LEAST_LOOKS else MOST_LOOK_SECONDS
        self._ended_early = said[0][0] > seconds and self._looks < LEAST_LOOKS
        self._is_over = not (self._rows or are_open) or self._looks >= limit or said[0][0] > seconds

    def _is_one_model(self, by_parameter: Sequence[Sequence[Any]]) -> bool:
        """Return whether the ranks train one model: shares of it, or the same parameters after a step moved some."""
        each = [one for row, one in zip(self._rows, by_parameter, strict=True) if row.is_compared]
        is_equal = all(one[1:3] == ranks[0][1:3] for ranks in each for one in ranks)
        return self._is_shared_out or (is_equal and any(not at_rest for ranks in each for *_, at_rest in ranks))

    def _said(self, row: _Row) -> tuple[str, tuple[int, ...], int | None, bool]:
        """Return name, shape and checksum, None: not to be compared, and whether it is what it was before training."""
        total = tensor_checksum(row.tensor) if row.is_compared else None
        return row.name, tuple(row.tensor.shape), total, total == self._before.get(id(row.tensor))

    def _is_open(self, row: _Row, each: Sequence[Any]) -> bool:
        """Note what the ranks said of a parameter, and return whether it has to be looked at again."""
        _, shapes, sums, at_rest = zip(*each, strict=True)
        if None in sums or any(one != shapes[0] for one in shapes):  # such are meant to differ
            return False
        others = tuple(number for number, one in enumerate(sums) if one != sums[0])
        if row.ranks and not others:
            self._averaged[row.name] = self._looks
        is_open = bool(others) or (all(at_rest) and not row.ranks)
        row.ranks = others
        return is_open

    def _all_rows(self) -> Iterator[_Row]:
        modules, wrapped = live_modules(), dict[int, nn.Module]()
        ignored = left_to_ranks(modules)
        self._choose_buffers(modules)  # once more: further optimizers have stepped since then
        for parallel in self._wrappers_of_all():
            wrapped |= {id(one): parallel for one in parallel.parameters()}
        names = parameter_names(modules)
        for number, (key, (one, place)) in enumerate(self._trained.items()):
            # What no module has is made for a batch, as a perturbation of it, and is another on each rank.
            is_compared = key in self._with_gradient and key in names and key not in ignored
            yield _Row(
                name=names.get(key, f"parameter {number}"),
                tensor=one,
                optimizer=place,
                wrapper=wrapped.get(key),
                is_compared=is_compared and type(one) in (Tensor, nn.Parameter),
            )

    def _drifting(self, row: _Row) -> DriftingParameter:
        is_exchanged, is_part = self.exchanges.has(row.tensor), self.exchanges.is_in_backward
        if row.wrapper is None:
            meant: _Meant = "exchanged" if is_exchanged else "part of a model" if is_part else ""
            return DriftingParameter(name=row.name, ranks=row.ranks, cause="outside", place=row.optimizer, meant=meant)
        seen = self.wrappers.of(row.wrapper)
        cause: _Cause = "unknown" if seen.exchanges else "no_sync" if seen.forward else "past the wrapper"
        return DriftingParameter(
            name=row.name,
            ranks=row.ranks,
            cause=cause,
            place=seen.forward if cause == "no_sync" else seen.place,
            meant="exchanged" if is_exchanged else "",
        )


def _shares_out(module: nn.Module) -> bool:
    return isinstance(module, FSDPModule) or type(module).__name__ == _SHARDED


def _trained_by(optimizer: Optimizer) -> list[Tensor]:
    return [one for group in optimizer.param_groups for one in group["params"] if one.requires_grad]


def _of_all_ranks(look: int, own: object) -> list[Any]:
    """Return what each rank said at this look, by rank; nothing if one does not come.

    Through the store by which the ranks found one another: a collective might come between those of the script.
    """
    store = distributed_c10d.PrefixStore("autotune", distributed_c10d._get_default_store())
    keys = [f"{look}/{rank}" for rank in range(world_size())]
    store.set(keys[distributed.get_rank()], json.dumps(own))
    late = time.monotonic() + ABSENCE_SECONDS
    while not store.check(keys):
        if time.monotonic() > late:
            return []
        time.sleep(_POLL_SECONDS)
    return [json.loads(store.get(key)) for key in keys]
