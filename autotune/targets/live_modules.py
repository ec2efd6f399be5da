"""The modules that are alive in this process, and the names of parameters in them: a script does not hand them over."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

_NOT_AVERAGED = "_ddp_params_and_buffers_to_ignore"  # a module's names that DDP leaves to each rank (torch 2.13)


def live_modules() -> list[nn.Module]:
    """Return all modules that Python's collector knows, but those whose making has not begun."""
    found = [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]  # isinstance would ask proxies
    return [one for one in found if "_modules" in vars(one)]


def outermost(modules: Sequence[nn.Module]) -> Iterator[nn.Module]:
    """Yield those of the modules that are in no other of them."""
    inner = {id(child) for one in modules for child in vars(one).get("_modules", {}).values() if child is not None}
    return (one for one in modules if id(one) not in inner)


def in_order(modules: Iterable[nn.Module], parameters: Iterable[int]) -> list[nn.Module]:
    """Return those of the modules that have some of these parameters, ordered by their first one; by identity."""
    order = {key: number for number, key in enumerate(parameters)}
    found = [([order[id(one)] for one in each.parameters() if id(one) in order], each) for each in modules]
    return [each for _, each in sorted((one for one in found if one[0]), key=lambda one: min(one[0]))]


def own_class(module: nn.Module) -> type[nn.Module]:
    """Return the class that the user gave a module: `fully_shard` changes Net to an FSDPNet, which derives from it."""
    kind = type(module)
    added, *others = kind.__bases__  # not by `isinstance`: to import torch's FSDP takes long
    return others[0] if others and any(one.__name__ == "FSDPModule" for one in added.__mro__) else kind


def class_name(module: nn.Module) -> str:
    """Return the name of the class that the user gave a module, before torch compiled, scripted or sharded it."""
    own = getattr(module, "_orig_mod", module)  # of the module that `torch.compile` returns
    return str(own.original_name) if isinstance(own, torch.jit.ScriptModule) else own_class(own).__name__


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the module inside a wrapper of `torch.compile` or of data parallelism."""
    for name in ("_orig_mod", "module"):
        # Those of torch.jit's modules have no `get`.
        inner = dict(vars(module).get("_modules", {}).items()).get(name)
        if inner is not None and len(list(module.children())) == 1:
            return unwrapped(inner)
    return module


def named_parts(models: Sequence[nn.Module]) -> dict[str, nn.Module]:
    """Return all modules of the models by name: as `named_modules` has it, of several after the class of each model.

    Models of one class are numbered: `Net 1`, `Net 2.head`.
    """
    if len(models) == 1:
        return dict(models[0].named_modules())
    kinds = [class_name(one) for one in models]
    found = dict[str, nn.Module]()
    for number, (model, kind) in enumerate(zip(models, kinds, strict=True)):
        first = f"{kind} {kinds[:number].count(kind) + 1}" if kinds.count(kind) > 1 else kind
        found |= {f"{first}.{name}".rstrip("."): one for name, one in model.named_modules()}
    return found


def hook_calls(module: nn.Module, begins: Callable[..., None], ends: Callable[..., None]) -> Callable[[], None]:
    """Let `begins(module, arguments, options)` and `ends(module, arguments, output)` be called around its calls.

    `ends` is called after an exception, too, with None. Return what takes the hooks off.
    """
    # Not by the module's own methods: those of a scripted one raise, though its hooks are called (torch 2.13).
    handles = (
        nn.Module.register_forward_pre_hook(module, begins, with_kwargs=True),
        nn.Module.register_forward_hook(module, ends, always_call=True),
    )

    def unhook() -> None:
        for handle in handles:
            handle.remove()

    return unhook


def left_to_ranks(modules: Iterable[nn.Module]) -> set[int]:
    """Return the identities of the parameters and buffers that DDP leaves to each rank."""
    found = set[int]()
    for module in modules:
        if names := getattr(module, _NOT_AVERAGED, ()):  # of the module or of its class, as DDP itself reads it
            tensors: list[tuple[str, Tensor]] = [*module.named_parameters(), *module.named_buffers()]
            found |= {id(one) for name, one in tensors if name in names}
    return found


def parameter_names(modules: Sequence[nn.Module]) -> dict[int, str]:
    """Return the names of parameters in the outermost module that has them, such as `Net.head.weight`, by identity."""
    names = dict[int, str]()
    for root in map(unwrapped, outermost(modules)):
        for name, one in root.named_parameters():
            text = f"{class_name(root)}.{name}"
            # One that several modules have gets the same name on all ranks, in whatever order these are found.
            names[id(one)] = min(names.get(id(one), text), text)
    return names
