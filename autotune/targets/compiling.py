"""torch.compile of a model in place: its call, or the calls of its repeated blocks.

    a model is called   ─► its compiled call
    only parts of it are, as by a `training_step`   ─► the compiled calls of these
    blocks that recompute ─► the computation of each, inside its checkpointing
    regional            ─► the compiled call of each block, one for all blocks of one class and shape

`torch.nn.Module.compile` compiles nothing of a module whose class is torch's own (`nn.Sequential`): frames of torch.nn
are skipped unless a traced function calls them (torch 2.13, measured: 0 frames). So a function of this file calls the
module, and this function is compiled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from autotune.knobs.compile_modes import DEFAULT, REGIONAL
from autotune.targets.checkpointing import Checkpointed, blocks, compile_inside, own_forward

Module = TypeVar("Module", bound=nn.Module)


def compile_model(model: Module, mode: str = DEFAULT) -> Module:
    """Make a model run compiled from its next call on, in place, and return it.

    `mode` is one of torch.compile's, or "regional": each repeated block is compiled, and equal blocks share the code.
    Names in the state dict stay; a copy or an unpickled model is not compiled. Compilation happens at the first call.
    """
    own = DEFAULT if mode == REGIONAL else mode
    shared: dict[Any, Callable[..., Any]] = {}
    for block in blocks(model):
        if isinstance(block, Checkpointed):
            compile_inside(block, shared.setdefault(_likeness(block), _compiled(own_forward, own)))
        elif mode == REGIONAL:
            _compile(block, shared.setdefault(_likeness(block), _compiled(_call, own)))
    for part in _called(model) if mode != REGIONAL else ():
        _compile(part, _compiled(_call, own))
    return model


def _call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Call a module, with its hooks, as without compiling."""
    call: Callable[..., Any] = module._call_impl
    return call(*args, **kwargs)


def _compiled(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    """Return the function compiled separately: other compilations do not count against its recompilation limit."""
    own = "isolate_recompiles" in inspect.signature(torch.compile).parameters  # since torch 2.13
    options: dict[str, Any] = {"isolate_recompiles": True} if own else {}
    return torch.compile(function, mode=None if mode == DEFAULT else mode, **options)


def _compile(module: nn.Module, compiled: Callable[..., Any]) -> None:
    module._compiled_call_impl = partial(compiled, module)


def _called(model: nn.Module) -> list[nn.Module]:
    """Return the modules that are called: the model, or the parts of a LightningModule that `training_step` calls."""
    if not hasattr(model, "training_step"):
        return [model]
    return [part for child in model.children() for part in _with_forward(child)]


def _with_forward(module: nn.Module) -> list[nn.Module]:
    """Return the outermost modules that compute with parameters and can be called: a list of modules cannot."""
    if isinstance(module, torch.jit.ScriptModule):  # first: the forward of its class cannot be read
        return []  # Dynamo cannot look into it
    if type(module).forward is not nn.Module.forward:
        return [module] if any(True for _ in module.parameters()) else []  # a metric has none, and Python in its call
    return [part for child in module.children() for part in _with_forward(child)]


def _likeness(block: nn.Module) -> tuple[Any, ...]:
    """Return a key that is equal for blocks that run the same code: class, and names and shapes of parameters."""
    shapes = ((name, tuple(parameter.shape)) for name, parameter in block.named_parameters())
    return (type(block), *shapes)
