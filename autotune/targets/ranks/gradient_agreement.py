"""Checks that all ranks learn the same: compares checksums of gradients and parameters around one step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import xor

import torch
from torch import Tensor, distributed, nn
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from autotune.errors import TargetError
from autotune.sentences import first_few
from autotune.targets.bare_parameters import bare_name
from autotune.targets.contract import Contract
from autotune.targets.live_modules import live_modules, parameter_names
from autotune.targets.ranks import world
from autotune.targets.ranks.unused_parameters import (
    MOST_NAMED_PARAMETERS,
    SEARCH_IN_FILE,
    forwards,
    lacking_by_rank,
    unused,
)

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of an element
_PLACES = 64  # few: one sum for each is made
_ODD = 0x1E3779B97F4A7C15  # multiplies without a loss, and moves low bits up: after Knuth's multiplicative hashing
_UNUSED = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")  # torch 2.13, reducer.cpp


@dataclass(frozen=True, kw_only=True)
class _Outside:
    """A parameter that is trained, and is not of the model."""

    tensor: Tensor
    before: int  # checksums before the step, of its values and of its gradient
    gradient: int
    optimizer: Optimizer
    is_beside: bool  # its optimizer trains the model, too


class Agreement:
    """Watches one optimizer step of a model of which each rank has a copy. Sharded weights need no check.

    Before it, a micro-batch is tried without an exchange: a rank that lacks a gradient would make the others wait for
    ever.
    """

    def __init__(self, model: nn.Module, called: nn.Module, contract: Contract) -> None:
        """`called` is the module that a user's step or the loss of a batch calls: the model, in its wrapper or not."""
        self._contract, self._line = contract, contract.line
        self._model, self._called, self._is_called = model, called, False
        self._names, self._parameters = list[str](), list[nn.Parameter]()
        for name, one in model.named_parameters() if world.world().size > 1 else ():
            if one.requires_grad and not isinstance(one, DTensor):
                self._names.append(name)
                self._parameters.append(one)
        self._gradients: list[int] | None = None  # their checksums; None: not looked at
        self._of_model = frozenset(map(id, model.parameters()))
        self._known = set(self._of_model)
        self._outside = list[_Outside]()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note whether the whole model is called in the `with` block, and the gradients of the first optimizer step.

        With one rank nothing is noted, because a ScriptModule has no hooks.
        """
        if world.world().size == 1:
            yield
            return

        def call(*_: object) -> None:
            self._is_called = True

        def step(optimizer: Optimizer, *_: object) -> None:
            every = [one for group in optimizer.param_groups for one in group["params"]]
            trained = [one for one in every if one.requires_grad and not isinstance(one, DTensor)]
            beside = [one for one in trained if id(one) not in self._known and one.grad is not None]
            is_beside = any(id(one) in self._of_model for one in every)
            self._outside += [
                _Outside(
                    tensor=one, before=tensor_checksum(one), gradient=_of_gradient(one), optimizer=optimizer,
                    is_beside=is_beside,
                )
                for one in beside
            ]  # fmt: skip
            self._known |= set(map(id, trained))
            if self._gradients is None:
                self._gradients = list(map(_of_gradient, self._parameters))

        with ExitStack() as stack:
            stack.callback(self._called.register_forward_pre_hook(call).remove)
            stack.callback(register_optimizer_step_pre_hook(step).remove)
            yield

    def try_alone(self, compute: Callable[[], None], *, finds_unused: bool) -> None:
        """Compute gradients by `compute`, which exchanges none, and drop them. Every rank must call it.

        Raises `TargetError` if a parameter gets none on some rank, unless DDP looks for such (`finds_unused`).
        """
        if not self._parameters or finds_unused:
            return
        compute()
        got = [one.grad is not None for one in self._parameters]
        for one in self._parameters:
            one.grad = None
        lacking = {
            rank: [name for name, has in zip(self._names, each, strict=True) if not has]
            for rank, each in enumerate(_by_rank(got))
        }
        if any(lacking.values()):
            raise unused(self._model, lacking, list(lacking), SEARCH_IN_FILE)

    def check(self) -> None:
        """Compare all ranks; every rank has to call it. Raises `TargetError` with the parameters that differ."""
        self._check_outside()
        if not self._parameters:
            return
        count, own = len(self._parameters), list(map(tensor_checksum, self._parameters))
        own += self._gradients or [0] * count
        by_rank = _by_rank(own)
        differing = [
            name
            for index, name in enumerate(self._names)
            if any(len({each[index + offset] for each in by_rank}) > 1 for offset in (0, count))
        ]
        if differing:
            raise self._disagreement(list(dict.fromkeys(differing)), len(by_rank))

    def _check_outside(self) -> None:
        # What no module has, and no optimizer of the model's, is made for a batch, as a perturbation of it, and is
        # another on each rank.
        names = parameter_names(live_modules()) if self._outside else {}
        compared = [one for one in self._outside if one.is_beside or id(one.tensor) in names]
        if len(set(world.gathered(len(compared)))) > 1 or not compared:
            return
        by_rank = _by_rank(list(map(self._said, compared)))
        differing = [one for one, *sums in zip(compared, *by_rank, strict=True) if len(set(sums)) > 1]
        if not differing:
            return
        has_bare = any(id(one.tensor) not in names for one in differing)
        variables = getattr(self._contract.names.get("optimizer"), "__globals__", {})
        words = [names.get(id(one.tensor)) or bare_name(one.tensor, one.optimizer, [variables]) for one in differing]
        remedy = "Make their module a part of that model."
        if has_bare:
            remedy = (
                "Make them a part of that model, a bare nn.Parameter as an attribute (net.scale = nn.Parameter(...) in "
                "model(), and model.scale where it is used)."
            )
        raise TargetError(
            f"after one optimizer step the {len(by_rank)} ranks have different values of "
            f"{first_few(words, MOST_NAMED_PARAMETERS)}. The optimizer{self._line('optimizer')} trains them, "
            f"but they are outside the model that model() returned, so that their gradients are not averaged. {remedy}"
        )

    def _said(self, one: _Outside) -> int:
        """Return a checksum of its values, which the file may have averaged; where they do not tell, of more."""
        now = tensor_checksum(one.tensor)
        if now == one.before:  # the learning rate was still 0
            return now ^ one.gradient
        if "step" in self._contract:  # which may average the values alone
            return now
        # The first step of Adam only takes the sign of a large gradient: a few equal signs make equal values.
        state = one.optimizer.state.get(one.tensor, {}).values()
        return reduce(xor, (tensor_checksum(each) for each in state if isinstance(each, Tensor)), now)

    def _disagreement(self, differing: list[str], size: int) -> TargetError:
        names = first_few(differing, MOST_NAMED_PARAMETERS)
        seen = f"after one optimizer step the {size} ranks have different values of {names}."
        if not self._is_called:
            return TargetError(
                f"{seen} step(){self._line('step')} probably calls parts of the model and not the model itself, so "
                f"that nothing averages their gradients. Call model(...), and let its forward return what the step "
                f"needs."
            )
        return TargetError(
            f"{seen} Probably a part of the model{forwards(self._model, differing)} is used that is called past its "
            f"forward pass, or the file changes weights or gradients with random numbers that differ between ranks. "
            f"Call such parts in the model's forward, and seed all ranks alike."
        )


def tensor_checksum(tensor: Tensor) -> int:
    """Return a checksum of a tensor's elements, read as integers: different values nearly always have different ones.

    They are summed by places that repeat, and the sums are mixed before they are added: the same values in another
    order differ, and so do opposite changes, which the gradients of two classes are. What ranks share out is gathered,
    which all of them must do: places are those of the whole.
    """
    tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    values = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
    values = torch.view_as_real(values) if values.is_complex() else values
    words = values.contiguous().view(_WORDS[values.element_size()]).flatten()
    rows, rest = words[: len(words) // _PLACES * _PLACES], words[len(words) // _PLACES * _PLACES :]
    sums = rows.view(-1, _PLACES).sum(0, dtype=torch.int64)
    sums[: len(rest)] += rest
    mixed = sums * _ODD
    mixed ^= mixed >> 32
    total = (mixed * torch.arange(1, 2 * _PLACES, 2, device=words.device)).sum()
    return int(total)


def _of_gradient(parameter: Tensor) -> int:
    return 0 if parameter.grad is None else tensor_checksum(parameter.grad)


def explained(
    error: Exception, model: nn.Module, group: ProcessGroup | None = None, search: str = SEARCH_IN_FILE
) -> TargetError | None:
    """Return a `TargetError` that explains an error of torch's that only ranks have; None for any other error.

    `group` trains the model; None: this rank alone. `search` is how to have ranks look for unused parameters.
    """
    text = str(error)
    if "Expected to have finished reduction in the prior iteration" in text:
        names = [name for name, one in model.named_parameters() if one.requires_grad]
        indices = sorted({int(index) for found in _UNUSED.findall(text) for index in found.split()})
        own = [names[index] for index in indices if index < len(names)]
        if group is None:
            return unused(model, {0: own}, [0], search)
        ranks = distributed.get_process_group_ranks(group)
        return unused(model, lacking_by_rank(own, ranks), ranks, search)
    if "mixed torch.Tensor and DTensor" in text:
        return TargetError(
            "a weight was used that is shared out among the ranks. Weights of a block are gathered where the block is "
            "called, all others where loss() is, or in a step() where the model is. A weight was probably read, or "
            "step() calls a part of the model. Let the forward of the block return what is needed, and call "
            "model(...) in step(); or hold strategy at ddp."
        )
    return None


def _by_rank(values: Sequence[int]) -> list[tuple[int, ...]]:
    said = world.gathered(*values)
    return [said[start : start + len(values)] for start in range(0, len(said), len(values))]
