"""Imported by every Python that a watched program starts: reports the first optimizer step of such a process.

The folder of this file stands first in PYTHONPATH meanwhile (`ExitHooks.heard`). It may be another Python, with packages
of its own: nothing but the standard library is imported here. Whatever goes wrong, the program must not notice it.
"""

import os
import sys
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.util import find_spec

WATCHED = "torch.optim.optimizer"


class _Finder(MetaPathFinder):
    """Adds a hook to torch's optimizers when they are imported, and goes."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, D102
        if name != WATCHED:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_hook(module):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            run(module)
            with suppress(Exception):
                _hook(module)

        spec.loader.exec_module = run_and_hook  # type: ignore[method-assign]
        return spec


def _hook(module):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    def stepped(*_):  # type: ignore[no-untyped-def]  # noqa: ANN002, ANN202
        hook.remove()
        with suppress(OSError):  # nobody listens any more
            pipe = os.open(os.environ["_AUTOTUNE_TRAINS"], os.O_WRONLY | os.O_NONBLOCK)
            words = getattr(sys, "orig_argv", sys.argv)  # the first is Python's
            os.write(pipe, "\0".join(words)[:2048].encode("utf-8", "replace"))  # at once: a pipe cuts longer ones
            os.close(pipe)

    hook = module.register_optimizer_step_post_hook(stepped)


with suppress(Exception):
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [one for one in sys.path if one != here]
    if "_AUTOTUNE_TRAINS" in os.environ:
        sys.meta_path.insert(0, _Finder())
    own = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401  # of the environment, which this one hid
    finally:
        sys.modules.setdefault("sitecustomize", own)  # whoever imports it now looks for it there
