"""The kinds of targets, each a way to read the user's module. A new kind is a file with `read`, and one entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.core.records import Declaration
from autotune.errors import TargetError
from autotune.targets import declared_knobs, importing
from autotune.targets.commands.watching.command_loop import CommandLoop
from autotune.targets.contract import Contract
from autotune.targets.kinds.functions import read as functions
from autotune.targets.kinds.lightning import read as lightning
from autotune.targets.kinds.trainer import read as trainer
from autotune.targets.loaded import Loaded, picked
from autotune.targets.own_loop import OwnLoop
from autotune.targets.ranks.world import world
from autotune.targets.reference import TargetPlace

# They are called in this order, until one does not return None. Each gets the imported module, and the arguments that
# its functions may ask for (`named_arguments.py`): batch_size, num_workers, device, knobs.
KINDS: tuple[Callable[[Loaded, Mapping[str, Any]], Contract | OwnLoop | None], ...] = (lightning, trainer, functions)


def load(
    reference: TargetPlace, offered: Mapping[str, Any], phase: Callable[[str], None],
    asked: Sequence[Declaration] | None = None,
) -> tuple[Contract | OwnLoop, tuple[Declaration, ...]]:  # fmt: skip
    """Import the target and read it by its kind. `phase` is called with `load` and `build`. Raises `TargetError`.

    Also return the knobs that the target or `asked` declares and its functions take; none if `asked` is None. Those
    that `offered` does not set have their defaults.
    """
    phase("load")
    if reference.command is not None:
        return CommandLoop(reference.command), declared_knobs.of_command(reference.command, asked or ())
    module = importing.load(reference)
    phase("build")
    loaded = picked(module, reference, offered)
    found = () if asked is None else declared_knobs.of_module(loaded, reference.attribute, asked)
    offered = {one.name: one.default for one in found} | dict(offered)
    kinds = (read(loaded, offered) for read in KINDS)
    kind = next(one for one in kinds if one is not None)
    if isinstance(kind, OwnLoop) and world().size > 1:
        raise _starts_its_own(reference.label)
    return kind, found


def _starts_its_own(label: str) -> TargetError:
    return TargetError(
        f"{label} trains in a loop of its own, and a framework's loop starts its ranks itself. Ours would each train a "
        f"model alone. Tune the command that starts them: autotune search -- torchrun --nproc-per-node 2 train.py."
    )
