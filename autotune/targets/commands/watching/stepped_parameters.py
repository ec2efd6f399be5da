"""Compares the parameters that the ranks of a command step, when optimizers begin further steps.

    step 1 ─► whatever makes ranks equal after a step (ZeroRedundancyOptimizer, a broadcast) ─► step 2 begins: a look
                                 some differ, or have not moved yet ─► one more step ─► a look ─► ...

A parameter that is equal once, after it was trained, is kept equal: by DDP after each step, in local SGD after every
few steps. One that never is, over many looks, drifts. Only in pure data parallelism must all ranks have the same
parameters: in `DistributedDataParallel` over all ranks, with no communication hook, which may average later, and with
no `FullyShardedDataParallel`. Where nothing is wrapped or shared out they may be parts of one model: then it counts
whether the script exchanges anything as large as gradients.

Buffers that training does not write are compared at the same looks. So they are where `fully_shard` shares out the
weights, and where the script averages gradients itself: there nothing is said of parameters, and equal ones show that
it does.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from msgspec.structs import replace
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from autotune.core.records import CheckLine, DriftingParameter, RankFacts
from autotune.targets.commands.distributed import world_size
from autotune.targets.commands.watching.among_ranks import SHARDED, said_by_all, shares_out, uses_rpc
from autotune.targets.commands.watching.own_exchanges import OwnExchanges, is_many
from autotune.targets.commands.watching.stepping_optimizers import SteppingOptimizers, trained_by
from autotune.targets.commands.watching.unwritten_buffers import UnwrittenBuffers
from autotune.targets.commands.watching.wrappers import Wrappers
from autotune.targets.live_modules import in_order, left_to_ranks, live_modules, outermost, parameter_names
from autotune.targets.ranks.gradient_agreement import tensor_checksum
from autotune.targets.ranks.rank_check_lines import batch_statistics, models_of_their_own

# Local SGD averages after 4 to 16 steps (PyTorch's PostLocalSGDOptimizer is documented with 4), seldom after 64.
MOST_LOOKS, MOST_LOOK_SECONDS = 100, 30.0
LEAST_LOOKS, LAST_LOOK_SECONDS = 17, 120.0  # the fewest looks that refuse a training, and how long they may take
MOST_LOOKS_AT_REST = 3  # for parameters that are equal, and were not moved: the learning rate may begin at 0
_Cause = Literal["outside", "bare", "unwrapped", "past the wrapper", "no_sync", "unknown"]
_Meant = Literal["", "exchanged", "others exchanged", "part of a model"]
_MOST_STEPS_WITHOUT_LOOK = 2


@dataclass(kw_only=True)
class _Row:
    """One parameter that is compared."""

    name: str
    tensor: Tensor
    optimizer: str  # the line that made its optimizer
    wrapper: nn.Module | None  # the `DistributedDataParallel` that has it
    is_compared: bool
    bare: str = ""  # what to call it if no module has it
    ranks: tuple[int, ...] = ()  # that had other values than rank 0 at the latest look


class SteppedParameters:
    """Watches the optimizers of one rank; with one rank, nothing."""

    def __init__(self) -> None:
        self.wrappers, self.exchanges, self._buffers = Wrappers(), OwnExchanges(), UnwrittenBuffers()
        self.check_lines: tuple[CheckLine, ...] = ()  # of models as they train: a script goes on while facts are read
        self._if_one_model: tuple[CheckLine, ...] = ()  # what is true if the first look shows that
        self._optimizers = SteppingOptimizers()  # those that have stepped before the first look are noted
        self._of_modules: Collection[int] = ()  # parameters that modules have at the first look, by identity
        self._trained: dict[int, tuple[Tensor, str]] = {}  # by identity of the parameter: with its optimizer's line
        self._before: dict[int, int] = {}  # checksums before the first step, by identity
        self._with_gradient: set[int] = set()
        self._depth = 0  # an optimizer's step may call another's, in the midst of which ranks may differ
        self._parallel: list[DistributedDataParallel] | None = None  # None: not looked for yet
        self._is_unwrapped = False  # nothing wraps or shares out a model, nor is it seen to be one
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
                stack.enter_context(self._optimizers.watched())
                stack.callback(register_optimizer_step_pre_hook(self._begin).remove)
                stack.callback(register_optimizer_step_post_hook(self._end).remove)
            yield

    def needs_another_step(self) -> bool:
        """Return whether ranks are to be compared once more. To be asked after each step."""
        self._asked += 1
        if self._asked > self._looks + _MOST_STEPS_WITHOUT_LOOK:  # no optimizer of torch's takes these steps
            self._is_over = True
        return (not self._is_over and self._is_compared()) or self.wrappers.are_undecided

    def facts(self, of_rank: RankFacts) -> RankFacts:
        """Return the facts of this rank with what was seen here."""
        rows, places = [row for row in self._rows if row.ranks and self._is_lasting(row)], self._optimizers.places
        if places and not self._optimizers.had_group:
            return replace(of_rank, drifting=(DriftingParameter(name="", ranks=(), cause="no group", place=places[0]),))
        return replace(
            of_rank,
            looks=self._looks,
            looks_ended_early=self._ended_early,
            drifting=(*map(self._drifting, rows), *self._buffers.drifting()),
            averaged=self._averaged,
            joins=self._joins,
            first_batch=of_rank.first_batch if self._parallel or self._is_shared_out else 0,
            needless_searches=self.wrappers.needless_searches(),
            early_exchanges=self.wrappers.early_exchanges(),
        )

    def _wrappers_of_all(self) -> list[DistributedDataParallel]:
        """Return the wrappers of all ranks; none if ranks need not have the same parameters."""
        if self._parallel is None:
            modules = live_modules()
            found = [one for one in modules if isinstance(one, DistributedDataParallel)]
            is_pure = all(one.process_group.size() == world_size() and not one._comm_hooks for one in found)
            is_pure &= all(type(one).__name__ != SHARDED for one in modules)
            self._parallel = found if is_pure else []
            has_shares = any(shares_out(one) for one in (*modules, *(one for one, _ in self._trained.values())))
            self._is_unwrapped = not (found or has_shares or uses_rpc()) and distributed.is_initialized()
            self._joins = any(one._join_config.enable for one in found)
            self._choose_buffers(modules)
            models = in_order(outermost(modules), self._trained) or found
            parts = {id(part): part for model in models for part in model.modules()}
            statistics = tuple(batch_statistics(parts.values(), world_size()))
            if any(one.process_group.size() > 1 for one in found) or any(shares_out(one) for one in modules):
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
        return bool(self._wrappers_of_all()) or self._is_unwrapped or self._buffers.are_open or bool(self._if_one_model)

    def _begin(self, optimizer: Optimizer, *_: Any) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        self.wrappers.stepped()
        if self._is_over:
            return
        if optimizer in self._optimizers and self._is_compared():
            self._look()
        for one in trained_by(optimizer) if not self._looks else ():
            self._before.setdefault(id(one), tensor_checksum(one))

    def _end(self, optimizer: Optimizer, *_: Any) -> None:
        self._depth -= 1
        self.wrappers.stepped()
        if self._depth or self._is_over:
            return
        if self._looks:
            self._optimizers.note_step(optimizer)
            return
        self.exchanges.is_on = True
        self._optimizers.note(optimizer)
        for one in trained_by(optimizer):
            self._trained[id(one)] = one, self._optimizers.place(optimizer)
            if one.grad is not None:
                self._with_gradient.add(id(one))

    def _look(self) -> None:
        """Compare what this rank has with what the others have, and keep what has to be looked at again."""
        if not self._looks:
            self._rows, self._began = list(self._all_rows()), time.monotonic()
        own = [time.monotonic() - self._began, [self._said(row) for row in self._rows], self._buffers.said()]
        said = said_by_all(self._looks, own, all_step=bool(self._looks or self._parallel))
        by_parameter = list(zip(*(rows for _, rows, _ in said), strict=False))
        if not self._looks and self._is_unwrapped and not (self.exchanges.is_many or self.exchanges.is_in_backward):
            self.check_lines = tuple(models_of_their_own([rows for _, rows, _ in said]))
        # If ranks trained parameters of different names, nothing is compared.
        counts = {len(rows) for _, rows, _ in said}
        if len(counts) != 1 or any(len({one[0] for one in each}) > 1 for each in by_parameter):
            self._is_over, self._ended_early = True, not said
            return
        if not self._looks and not self._parallel:
            is_one_model = self._is_one_model(by_parameter)
            if not (is_one_model or self._is_unwrapped):
                self._is_over = True
                return
            self._is_unwrapped = not is_one_model
            if self._is_unwrapped:  # its buffers and statistics are those of one rank
                self._buffers, self._if_one_model = UnwrittenBuffers(), ()
                said = [(seconds, rows, {}) for seconds, rows, _ in said]
        self._looks += 1
        self.check_lines, self._if_one_model = self.check_lines or self._if_one_model, ()
        rows = [row for row, each in zip(self._rows, by_parameter, strict=True) if self._is_open(row, each)]
        # Without a wrapper, equal ones show that the script makes them so, and others may be meant to differ.
        is_apart = self._is_unwrapped and not self._is_partly_one(rows, by_parameter)
        self._rows = rows if self._parallel or is_apart else []
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

    def _is_partly_one(self, still_open: Sequence[_Row], by_parameter: Sequence[Sequence[Any]]) -> bool:
        """Return whether ranks have large parameters that are equal now, or shapes of their own: parts of a model."""
        compared = [each for row, each in zip(self._rows, by_parameter, strict=True) if row.is_compared]
        shapes_differ = any(one[1] != each[0][1] for each in compared for one in each)
        closed = [row for row in self._rows if row.is_compared and not any(row is one for one in still_open)]
        return shapes_differ or any(is_many(row.tensor) for row in closed)

    def _said(self, row: _Row) -> tuple[str, tuple[int, ...], int | None, bool]:
        """Return name, shape and checksum, None: not to be compared, and whether it is what it was before training."""
        total = tensor_checksum(row.tensor) if row.is_compared else None
        return row.name, tuple(row.tensor.shape), total, total == self._before.get(id(row.tensor))

    def _is_open(self, row: _Row, each: Sequence[Any]) -> bool:
        """Note what the ranks said of a parameter, and return whether it has to be looked at again."""
        _, shapes, sums, at_rest = zip(*each, strict=True)
        if None in sums or any(one != shapes[0] for one in shapes):  # such are meant to differ
            return False
        if self._looks > MOST_LOOKS_AT_REST and not self._is_lasting(row):
            row.ranks = ()
            return False
        others = tuple(number for number, one in enumerate(sums) if one != sums[0])
        if row.ranks and not others:
            self._averaged[row.name] = self._looks
        # The first step of Adam only takes the sign of a large gradient: a few equal signs make equal values.
        is_by_chance = row.wrapper is None and not is_many(row.tensor)
        is_by_chance &= self._looks <= len(self._optimizers.places)  # each step of an optimizer begins with a look
        is_open = bool(others) or is_by_chance or (all(at_rest) and not row.ranks)
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
            is_compared = key in self._with_gradient and key not in ignored and (key in names or not self._is_unwrapped)
            yield _Row(
                name=names.get(key, f"parameter {number}"),
                tensor=one,
                optimizer=place,
                wrapper=wrapped.get(key),
                is_compared=is_compared and type(one) in (Tensor, nn.Parameter),
                bare="" if key in names else self._optimizers.bare_name(one),
            )
        self._of_modules = names.keys()

    def _is_lasting(self, row: _Row) -> bool:
        """Return whether it is trained from batch to batch, and not made for one."""
        return not row.bare or self._optimizers.trains_again(row.tensor, self._of_modules)

    def _drifting(self, row: _Row) -> DriftingParameter:
        is_exchanged, is_part = self.exchanges.has(row.tensor), self.exchanges.is_in_backward
        if row.wrapper is None:
            cause: _Cause = "unwrapped" if self._is_unwrapped else "bare" if row.bare else "outside"
            own: _Meant = "others exchanged" if self._is_unwrapped else "part of a model"
            is_part |= self._is_unwrapped and self.exchanges.is_many
            meant: _Meant = "exchanged" if is_exchanged else own if is_part else ""
            return DriftingParameter(
                name=row.bare or row.name, ranks=row.ranks, cause=cause, place=row.optimizer, meant=meant
            )
        seen = self.wrappers.of(row.wrapper)
        cause = "unknown" if seen.exchanges else "no_sync" if seen.forward else "past the wrapper"
        return DriftingParameter(
            name=row.name,
            ranks=row.ranks,
            cause=cause,
            place=seen.forward if cause == "no_sync" else seen.place,
            meant="exchanged" if is_exchanged else "",
        )
