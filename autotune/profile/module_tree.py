"""The tree of a model's modules, by their names as `named_modules` has them: "", "layer1", "layer1.0"."""

from __future__ import annotations

from collections.abc import Iterable


def is_inside(name: str, module: str) -> bool:
    """Return whether `name` is that module or one in it; the model itself is called ""."""
    return not module or f"{name}.".startswith(f"{module}.")


def parts_of(module: str, names: Iterable[str]) -> list[str]:
    """Return the modules right below `module` of those in `names`, also those that only hold others."""
    depth = module.count(".") + 1 if module else 0
    below = (one for one in names if one and one != module and is_inside(one, module))
    return list(dict.fromkeys(".".join(one.split(".")[: depth + 1]) for one in below))
