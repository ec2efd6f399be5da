"""Imported by every Python that a watched program or `autotune run` starts.

For a watched program it reports the first optimizer step of such a process; for `autotune run` it sets
TrainingArguments. The folder of this file is first in PYTHONPATH meanwhile (`ExitHooks.heard`). The Python may be
another one with its own packages, so only the standard library is imported here. Errors here must never reach the
program.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

import autotune_hooks as hooks  # type: ignore[import-not-found]  # beside this file

WATCHED = "torch.optim.optimizer"
TRAINS = "_AUTOTUNE_TRAINS"  # environment variable: the pipe on which to report that this process trains
MOST_CHARACTERS = 1000  # of its command line: more might not be written in one piece


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
    for variable, watched, then in (
        (TRAINS, WATCHED, _hook),
        (hooks.ARGUMENTS_VARIABLE, hooks.ARGUMENTS_MODULE, hooks.change_as_environment_says),
    ):
        if variable in os.environ:
            sys.meta_path.insert(0, hooks.Finder(watched, then))
    own = sys.modules.pop("sitecustomize")
    try:
        import_module("sitecustomize")  # of the environment, which this one hid
    finally:
        sys.modules.setdefault("sitecustomize", own)  # importers look for it there
