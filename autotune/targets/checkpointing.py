"""Activation checkpointing: which blocks of a model are computed again in the backward pass, and how that is done.

    forward   block ─► block ─► block      only what goes into a block is kept
    backward  block ◄─ block ◄─ block      each is computed again, then differentiated

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
from torch.utils.checkpoint import checkpoint

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_SUBCLASSES: dict[type[nn.Module], type[nn.Module]] = {}
_COMPILED: WeakKeyDictionary[nn.Module, Callable[..., Any]] = WeakKeyDictionary()  # what runs for a block's forward


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

        def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
            return nullcontext(), _on_copies_of_buffers(self)

        # By position, because `checkpoint` looks there only: for devices to replay, and for inputs changed in place.
        return checkpoint(positional, *args, *kwargs.values(), use_reentrant=False, context_fn=contexts)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled by the class that it was: nobody can import the one that was made here."""
        reduced: tuple[Any, ...] = tuple(super().__reduce_ex__(protocol))  # how to make one, of what, its state, ...
        return _revived, (type(self).__mro__[2],), *reduced[2:]


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
    """Return the number of blocks that `checkpoint_blocks` would treat; 0 too where the model's own switch does so."""
    own = _with_switch(model)
    return 0 if any(_is_switched_on(module) for module in own) else len(blocks(model))


def checkpoint_blocks(model: nn.Module) -> nn.Module:
    """Let the blocks of a model recompute from now on while it trains, and return it."""
    switched = _with_switch(model)
    for module in switched:
        name = _word(module)
        switch: Any = getattr(module, f"{name}_checkpointing_enable")
        switch(**{f"{name}_checkpointing_kwargs": {"use_reentrant": False}})
    theirs = {id(part) for module in switched for part in module.modules()}
    for block in blocks(model):
        if id(block) not in theirs and not isinstance(block, Checkpointed):
            block.__class__ = _checkpointed(type(block))
    return model


def compile_inside(block: Checkpointed, compiled: Callable[..., Any]) -> None:
    """Let `compiled` run in the place of a block's own forward, given the block: checkpointing stays around it.

    Dynamo would trace checkpointing without the copies of buffers, whose statistics then count a batch twice.
    """
    _COMPILED[block] = compiled
    if not hasattr(Checkpointed.forward, "_torchdynamo_disable"):
        Checkpointed.forward = torch.compiler.disable(Checkpointed.forward)  # type: ignore[method-assign, no-untyped-call]  # not before: it imports Dynamo


def own_forward(block: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Call what a checkpointed block computes, once and without checkpointing."""
    return type(block).__mro__[2].forward(block, *args, **kwargs)  # type: ignore[attr-defined]


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


def _checkpointed(plain: type[nn.Module]) -> type[nn.Module]:
    """One subclass for each class, so that blocks of one class stay so."""
    if plain not in _SUBCLASSES:
        _SUBCLASSES[plain] = type(f"Checkpointed{plain.__name__}", (Checkpointed, plain), {})
    return _SUBCLASSES[plain]


def _revived(plain: type[nn.Module]) -> nn.Module:
    """An empty block, of which its state is still to be set."""
    made = _checkpointed(plain)
    return made.__new__(made)


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
