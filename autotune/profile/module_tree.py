"""The tree of a model's modules, by their names in `named_modules`: "", "layer1", "layer1.0"."""

from __future__ import annotations

from collections.abc import Iterable


def is_inside(name: str, module: str) -> bool:
    """Return whether `name` is that module or one inside it; the model itself has the name ""."""
    return not module or f"{name}.".startswith(f"{module}.")


def parts_of(module: str, names: Iterable[str]) -> list[str]:
    """Return the direct children of `module` among `names`, also mere containers."""
    depth = module.count(".") + 1 if module else 0
    below = (one for one in names if one and one != module and is_inside(one, module))
    return list(dict.fromkeys(".".join(one.split(".")[: depth + 1]) for one in below))
