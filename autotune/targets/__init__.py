"""What a reference to training code means: `resolve` finds the kind of target that can read it."""

from __future__ import annotations

from collections.abc import Callable

from autotune.errors import TargetError
from autotune.targets.base import Target
from autotune.targets.functions import FunctionTarget


def resolve(reference: str) -> Target:
    """The target behind `reference`: `path.py`, `pkg.train`, or either with `:attribute`.

    Paths and modules are looked up from the working folder. Imports neither torch nor the user's code; raises
    `TargetError` if no kind of target can read the reference, or if its file is missing.
    """
    for kind in KINDS:
        target = kind(reference)
        if target is not None:
            return target
    raise TargetError(
        f"{reference!r} is neither a Python file nor a module. A target is a file of functions such as model.py, a "
        f"module such as pkg.train, or one function in it such as model.py:build. Write model() and dataset() into "
        f"a file, and name that file."
    )


# Tried in this order; the first kind that recognises the reference gets it. New kinds (a command, say) go here.
KINDS: tuple[Callable[[str], Target | None], ...] = (FunctionTarget.recognise,)
