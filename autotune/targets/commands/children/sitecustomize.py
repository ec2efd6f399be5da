"""Imported by every Python that a watched program starts: reports the first optimizer step of such a process.

The folder of this file stands first in PYTHONPATH meanwhile (`ExitHooks.heard`). It may be another Python with its own
packages: nothing but the standard library is imported here. Whatever goes wrong, the program must not notice it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

WATCHED = "torch.optim.optimizer"
TRAINS = "_AUTOTUNE_TRAINS"  # environment variable: where to say that this process trains
MOST_CHARACTERS = 1000  # of its words: more would not be written at once


class Finder:
    """Finds torch's optimizers as they are imported, and adds a hook to them."""

    def find_spec(self, name: str, _path: object = None, _target: object = None, /) -> ModuleSpec | None:
        """Return what the other finders find, with the hook; None for all other modules."""
        if name != WATCHED:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_hook(module: ModuleType) -> None:
            run(module)
            with suppress(Exception):
                _hook(module)

        spec.loader.exec_module = run_and_hook  # type: ignore[method-assign]  # of this one loader
        return spec


def _hook(module: ModuleType) -> None:
    def stepped(*_: object) -> None:
        hook.remove()
        words = "\0".join(getattr(sys, "orig_argv", sys.argv))  # the first is Python's
        with suppress(OSError):  # nobody listens any more
            pipe = os.open(os.environ[TRAINS], os.O_WRONLY | os.O_NONBLOCK)
            os.write(pipe, words[:MOST_CHARACTERS].encode("utf-8", "replace"))
            os.close(pipe)

    hook = module.register_optimizer_step_post_hook(stepped)


with suppress(Exception):
    here = Path(__file__).resolve().parent
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != here]
    if TRAINS in os.environ:
        sys.meta_path.insert(0, Finder())
    own = sys.modules.pop("sitecustomize")
    try:
        import_module("sitecustomize")  # of the environment, which this one hid
    finally:
        sys.modules.setdefault("sitecustomize", own)  # whoever imports it now looks for it there
