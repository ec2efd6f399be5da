"""Activation checkpointing: chooses the blocks of a model that the backward pass computes again, and makes them do so.

    forward   block ─► block ─► block      only what goes into a block is kept
    backward  block ◄─ block ◄─ block      each is computed again, then differentiated

Two weaker forms save less memory and less time is lost: only every second or third block is recomputed, or every block
keeps the results of the operations whose FLOPs torch counts (matrix products, convolutions, attention) and recomputes
the rest.

A block's class is replaced by a subclass of it, as FSDP2 does: the names in the state dict stay, and a copy of the
model uses its own weights. Blocks are the modules that containers repeat (layers of a transformer, blocks of a residual
network); a Hugging Face model knows its blocks, and has its own switch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import flop_registry

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
LAYER = "GradientCheckpointingLayer"  # the class in transformers, from 4.53 on, whose blocks can be switched one by one
# Attention on the CPU, whose FLOPs torch does not count (2.13).
_UNCOUNTED = (torch.ops.aten._scaled_dot_product_flash_attention_for_cpu,)
_SUBCLASSES: dict[tuple[type[nn.Module], type[nn.Module]], type[nn.Module]] = {}
_COMPILED: WeakKeyDictionary[nn.Module, Callable[..., Any]] = WeakKeyDictionary()  # what runs for a block's forward
Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


class Checkpointed(nn.Module):
    """A mixin before a module's class: while training, results of its forward are not kept but computed again.

    The recomputation repeats the random numbers and the autocast state. Statistics that a module keeps in its buffers
    (BatchNorm's running statistics) are updated once. Not covered: state outside of buffers, and buffers that affect
    results in the same forward pass (the power iteration of `spectral_norm`): gradients then differ slightly.
    """

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the block's output; it is recomputed in the backward pass if gradients are enabled."""
        run: Callable[..., Any] = partial(_COMPILED[self], self) if self in _COMPILED else super().forward
        if not (self.training and torch.is_grad_enabled()):
            return run(*args, **kwargs)
        names = tuple(kwargs)

        def positional(*given: Any) -> Any:
            return run(*given[: len(args)], **dict(zip(names, given[len(args) :], strict=True)))

        # By position, because `checkpoint` looks only there for devices to replay and for inputs changed in place.
        return checkpoint(positional, *args, *kwargs.values(), use_reentrant=False, context_fn=self._contexts)

    def _contexts(self) -> Contexts:
        """Return the contexts of the forward pass and of its recomputation."""
        return nullcontext(), _on_copies_of_buffers(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle it as its original class, because the class that was made here cannot be imported."""
        reduced: tuple[Any, ...] = tuple(super().__reduce_ex__(protocol))  # constructor, its arguments, state, ...
        how, plain = type(self).__bases__
        return _revived, (plain, how), *reduced[2:]


class SelectivelyCheckpointed(Checkpointed):
    """A checkpointed block that keeps the results of its most expensive operations.

    Not covered: a block that changes such a result in place, which torch refuses in the backward pass.
    """

    def _contexts(self) -> Contexts:
        keeping, recalling = selective_contexts()
        return keeping, _both(_on_copies_of_buffers(self), recalling)


def blocks(module: nn.Module) -> list[nn.Module]:
    """Return the modules that are worth recomputing: the outermost that containers repeat, else the innermost ones.

    A container of containers is a stage, whose own blocks count. Each block has parameters and submodules.
    """
    repeated = Counter(type(child) for child in module.children()) if isinstance(module, CONTAINERS) else Counter()
    found: list[nn.Module] = []
    for child in module.children():
        inner = blocks(child)
        if inner and (isinstance(child, CONTAINERS) or repeated[type(child)] < 2):
            found += inner
        elif isinstance(module, CONTAINERS) and _can_be_checkpointed(child):
            found.append(child)
    return found


def checkpointable_blocks(model: nn.Module) -> int:
    """Return the number of blocks that `checkpoint_blocks` would change; 0 if they recompute already.

    They do if the model's own switch is on, or the user's code has called `checkpoint_blocks`.
    """
    if any(_is_switched_on(module) for module in _with_switch(model)):
        return 0
    found = blocks(model)
    return 0 if any(isinstance(block, Checkpointed) for block in found) else len(found)


def checkpoint_blocks(model: nn.Module, *, every: int = 1, selective: bool = False) -> nn.Module:
    """Make the blocks of a model recompute while it trains, in place, and return the model.

    `every`: n means the first block and every n-th after it. `selective`: keep the results of matrix products,
    convolutions and attention, and recompute the rest. Raises `ValueError` for an `every` below 1, and for a Hugging
    Face model of transformers before 4.53, which recomputes all of its blocks or none.
    """
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise ValueError(f"every must be a whole number of at least 1, got {every!r}")
    switched = _with_switch(model)
    for module in switched:
        _switch(module, every, selective)
    theirs = {id(part) for module in switched for part in module.modules()}
    own = [block for block in blocks(model) if id(block) not in theirs]
    how = SelectivelyCheckpointed if selective else Checkpointed
    for block in own[::every]:
        if not isinstance(block, Checkpointed):
            block.__class__ = _checkpointed(type(block), how)
    return model


def selective_contexts() -> Contexts:
    """Return the contexts for `checkpoint(context_fn=)`: keep results of operations with FLOPs, recompute the rest."""
    keeping, recalling = create_selective_checkpoint_contexts(_policy)  # type: ignore[no-untyped-call]  # of torch 2.13
    return keeping, recalling


def _policy(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    packet = getattr(operation, "overloadpacket", operation)
    is_dear = packet in flop_registry or packet in _UNCOUNTED
    if operation._schema.is_mutable:  # in compiled code, writes into buffers that are reused
        return CheckpointPolicy.PREFER_RECOMPUTE
    return CheckpointPolicy.MUST_SAVE if is_dear else CheckpointPolicy.PREFER_RECOMPUTE


def _switch(module: nn.Module, every: int, selective: bool) -> None:
    """Switch on the recomputing of a model that has its own switch."""
    name = _word(module)
    options = {"use_reentrant": False, **({"context_fn": selective_contexts} if selective else {})}
    getattr(module, f"{name}_checkpointing_enable")(**{f"{name}_checkpointing_kwargs": options})
    if every == 1:
        return
    layers = [part for part in module.modules() if any(one.__name__ == LAYER for one in type(part).__mro__)]
    if not layers:
        raise ValueError(
            f"{type(module).__name__} recomputes all of its blocks or none: checkpoint_blocks got every={every}. Its "
            f"transformers is probably older than 4.53. Install a later one, or recompute every block."
        )
    for number, layer in enumerate(layers):
        if number % every:
            layer.gradient_checkpointing = False  # type: ignore[assignment]  # a flag of transformers


def compile_inside(block: Checkpointed, compiled: Callable[..., Any]) -> None:
    """Make `compiled`, called with the block, replace the block's own forward, inside its checkpointing.

    Dynamo would trace checkpointing without the copies of buffers, so statistics would count a batch twice.
    """
    _COMPILED[block] = compiled
    if not hasattr(Checkpointed.forward, "_torchdynamo_disable"):
        unseen: Callable[..., Any] = torch.compiler.disable  # accessed here only, because it imports Dynamo
        Checkpointed.forward = unseen(Checkpointed.forward)  # type: ignore[method-assign]


def own_forward(block: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Return the result of a checkpointed block's own forward, without checkpointing."""
    return super(Checkpointed, block).forward(*args, **kwargs)  # type: ignore[misc]  # the block's original class


def _with_switch(module: nn.Module) -> list[nn.Module]:
    """Return the outermost modules that have their own checkpointing, as Hugging Face's `PreTrainedModel`."""
    if getattr(module, "supports_gradient_checkpointing", False) is True and callable(
        getattr(module, "gradient_checkpointing_enable", None)
    ):
        return [module]
    return [found for child in module.children() for found in _with_switch(child)]


def _word(module: nn.Module) -> str:
    """Return the word in its switch's name: `gradient`.

    transformers 5.22 renamed it to `activation`, and warns of the old name.
    """
    return "activation" if hasattr(module, "activation_checkpointing_enable") else "gradient"


def _is_switched_on(module: nn.Module) -> bool:
    return bool(getattr(module, f"is_{_word(module)}_checkpointing", False))


def _can_be_checkpointed(module: nn.Module) -> bool:
    """Return whether it has submodules, parameters, and the forward of its class."""
    return (
        not isinstance(module, torch.jit.ScriptModule)  # first: the forward of its class cannot be read
        and any(True for _ in module.children())
        and any(True for _ in module.parameters())
        and type(module).forward is not nn.Module.forward
        and "forward" not in vars(module)
    )


def _checkpointed(plain: type[nn.Module], how: type[nn.Module]) -> type[nn.Module]:
    """Return the subclass for a class: one for each, so that blocks of one class still have one class."""
    if (plain, how) not in _SUBCLASSES:
        _SUBCLASSES[plain, how] = type(f"{how.__name__}{plain.__name__}", (how, plain), {})
    return _SUBCLASSES[plain, how]


def _revived(plain: type[nn.Module], how: type[nn.Module] = Checkpointed) -> nn.Module:
    """Return a block without state, for unpickling; pickles of earlier versions do not give `how`."""
    made = _checkpointed(plain, how)
    return made.__new__(made)


@contextmanager
def _both(outer: AbstractContextManager[Any], inner: AbstractContextManager[Any]) -> Iterator[None]:
    with outer, inner:
        yield


@contextmanager
def _on_copies_of_buffers(block: nn.Module) -> Iterator[None]:
    """Replace the buffers by copies until the end: writes are dropped, and autograd finds the originals."""
    originals = [(part, name, buffer) for part in block.modules() for name, buffer in part.named_buffers(recurse=False)]
    for part, name, buffer in originals:
        setattr(part, name, buffer.detach().clone())
    try:
        yield
    finally:
        for part, name, buffer in originals:
            setattr(part, name, buffer)
