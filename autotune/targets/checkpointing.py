"""Activation checkpointing: which blocks of a model are computed again in the backward pass, and how that is done.

    forward   block ─► block ─► block      only what goes into a block is kept
    backward  block ◄─ block ◄─ block      each is computed again, then differentiated

Less can be done for less memory won: every second or third block only, or, in every block, all but the operations that
torch counts FLOPs of (matrix products, convolutions, attention), whose results are kept.

A block's class is swapped for a subclass of it, as FSDP2 does: the names in the state dict stay, and a copy of the
model runs its own weights. Blocks are what containers repeat (layers of a transformer, blocks of a residual network);
a Hugging Face model knows its own, and has a switch.
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
LAYER = "GradientCheckpointingLayer"  # the class of transformers, from 4.53 on, whose blocks are switched one by one
# Attention on the CPU, which torch counts no FLOPs of (2.13).
_UNCOUNTED = (torch.ops.aten._scaled_dot_product_flash_attention_for_cpu,)
_SUBCLASSES: dict[tuple[type[nn.Module], type[nn.Module]], type[nn.Module]] = {}
_COMPILED: WeakKeyDictionary[nn.Module, Callable[..., Any]] = WeakKeyDictionary()  # what runs for a block's forward
Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


class Checkpointed(nn.Module):
    """Put before a module's class: what its forward computes is not kept while training, but computed again.

    Random numbers are replayed, and autocast is as it was. What a module counts in its buffers (BatchNorm's running
    statistics) is counted once. Not covered: state outside of buffers, and buffers that change what is computed in the
    same forward pass (the power iteration of `spectral_norm`), whose gradients then differ slightly.
    """

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The block's own, recomputed where gradients are wanted."""
        run: Callable[..., Any] = partial(_COMPILED[self], self) if self in _COMPILED else super().forward
        if not (self.training and torch.is_grad_enabled()):
            return run(*args, **kwargs)
        names = tuple(kwargs)

        def positional(*given: Any) -> Any:
            return run(*given[: len(args)], **dict(zip(names, given[len(args) :], strict=True)))

        # By position, because `checkpoint` looks there only: for devices to replay, and for inputs changed in place.
        return checkpoint(positional, *args, *kwargs.values(), use_reentrant=False, context_fn=self._contexts)

    def _contexts(self) -> Contexts:
        """Return the contexts of the forward pass and of its recomputation."""
        return nullcontext(), _on_copies_of_buffers(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle it as the class that it was: nobody can import the one that was made here."""
        reduced: tuple[Any, ...] = tuple(super().__reduce_ex__(protocol))  # how to make one, of what, its state, ...
        how, plain = type(self).__bases__
        return _revived, (plain, how), *reduced[2:]


class SelectivelyCheckpointed(Checkpointed):
    """A checkpointed block that keeps the results of what costs most to compute.

    Not covered: a block that writes into such a result, which torch refuses in the backward pass.
    """

    def _contexts(self) -> Contexts:
        keeping, recalling = selective_contexts()
        return keeping, _both(_on_copies_of_buffers(self), recalling)


def blocks(module: nn.Module) -> list[nn.Module]:
    """The modules inside that are worth recomputing one by one: outermost among what containers repeat, else innermost.

    A container of containers is a stage, whose own blocks count. Each has parameters and parts of its own.
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
    """Return the number of blocks that `checkpoint_blocks` would treat; 0 too where they recompute already.

    By the model's own switch, or because the user's code has called `checkpoint_blocks`.
    """
    if any(_is_switched_on(module) for module in _with_switch(model)):
        return 0
    found = blocks(model)
    return 0 if any(isinstance(block, Checkpointed) for block in found) else len(found)


def checkpoint_blocks(model: nn.Module, *, every: int = 1, selective: bool = False) -> nn.Module:
    """Let the blocks of a model recompute from now on while it trains, and return it.

    `every`: only the first block and every so many after it. `selective`: keep the results of matrix products,
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
    """Return what `checkpoint(context_fn=)` asks for: keep what costs FLOPs, and recompute the rest."""
    keeping, recalling = create_selective_checkpoint_contexts(_policy)  # type: ignore[no-untyped-call]  # of torch 2.13
    return keeping, recalling


def _policy(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    packet = getattr(operation, "overloadpacket", operation)
    is_dear = packet in flop_registry or packet in _UNCOUNTED
    if operation._schema.is_mutable:  # of compiled code, into buffers that are used again
        return CheckpointPolicy.PREFER_RECOMPUTE
    return CheckpointPolicy.MUST_SAVE if is_dear else CheckpointPolicy.PREFER_RECOMPUTE


def _switch(module: nn.Module, every: int, selective: bool) -> None:
    """Switch on the recomputing of a model that has its own."""
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
    """Let `compiled` run in the place of a block's own forward, given the block: checkpointing stays around it.

    Dynamo would trace checkpointing without the copies of buffers, whose statistics then count a batch twice.
    """
    _COMPILED[block] = compiled
    if not hasattr(Checkpointed.forward, "_torchdynamo_disable"):
        unseen: Callable[..., Any] = torch.compiler.disable  # asked for now only: it imports Dynamo
        Checkpointed.forward = unseen(Checkpointed.forward)  # type: ignore[method-assign]


def own_forward(block: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Call what a checkpointed block computes, once and without checkpointing."""
    return super(Checkpointed, block).forward(*args, **kwargs)  # type: ignore[misc]  # whatever class came before it


def _with_switch(module: nn.Module) -> list[nn.Module]:
    """The outermost modules that checkpoint by themselves, as Hugging Face's `PreTrainedModel` does."""
    if getattr(module, "supports_gradient_checkpointing", False) is True and callable(
        getattr(module, "gradient_checkpointing_enable", None)
    ):
        return [module]
    return [found for child in module.children() for found in _with_switch(child)]


def _word(module: nn.Module) -> str:
    """Return its own switch's word: `gradient` until transformers 5.22, `activation` since; the old one warns now."""
    return "activation" if hasattr(module, "activation_checkpointing_enable") else "gradient"


def _is_switched_on(module: nn.Module) -> bool:
    return bool(getattr(module, f"is_{_word(module)}_checkpointing", False))


def _can_be_checkpointed(module: nn.Module) -> bool:
    """Whether it has parts, parameters, and a forward of its class."""
    return (
        any(True for _ in module.children())
        and any(True for _ in module.parameters())
        and type(module).forward is not nn.Module.forward
        and "forward" not in vars(module)
        and not isinstance(module, torch.jit.ScriptModule)
    )


def _checkpointed(plain: type[nn.Module], how: type[nn.Module]) -> type[nn.Module]:
    """One subclass for each class, so that blocks of one class stay so."""
    if (plain, how) not in _SUBCLASSES:
        _SUBCLASSES[plain, how] = type(f"{how.__name__}{plain.__name__}", (how, plain), {})
    return _SUBCLASSES[plain, how]


def _revived(plain: type[nn.Module], how: type[nn.Module] = Checkpointed) -> nn.Module:
    """An empty block, of which its state is still to be set; earlier versions had one kind only."""
    made = _checkpointed(plain, how)
    return made.__new__(made)


@contextmanager
def _both(outer: AbstractContextManager[Any], inner: AbstractContextManager[Any]) -> Iterator[None]:
    with outer, inner:
        yield


@contextmanager
def _on_copies_of_buffers(block: nn.Module) -> Iterator[None]:
    """Run with copies of the buffers: what is written meanwhile is forgotten, and autograd finds the originals."""
    originals = [(part, name, buffer) for part in block.modules() for name, buffer in part.named_buffers(recurse=False)]
    for part, name, buffer in originals:
        setattr(part, name, buffer.detach().clone())
    try:
        yield
    finally:
        for part, name, buffer in originals:
            setattr(part, name, buffer)
