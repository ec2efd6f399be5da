"""Steps that a program reports by `autotune.step`: if it calls that, they count, and steps seen by hooks do not.

The code is searched for the call before the first step: a GAN's critic may step five times before the first call.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from autotune import telling
from autotune.errors import TargetError
from autotune.targets.commands.script.syntax import calls
from autotune.targets.commands.watching.fetching import Fetched, Fetching
from autotune.targets.installed import is_installed

MOST_STEPS_WITHOUT_CALL = 50  # of an optimizer: after so many the program is taken not to call it
_OTHERS = {
    *(sys.stdlib_module_names - {"__main__"}),
    "autotune",
    "torch",
    "numpy",
}  # modules without a training loop of the user's
_IMPORT = re.compile(r"(?:^|[;:])[ \t]*(?:from\s+([\w.]+)\s+)?import\s+(?:\(([^)]*)\)|([^\n(;]+))", re.MULTILINE)
_COMMENT = re.compile(r"#.*")

MicroBatch = tuple[Fetched, Tensor]  # a batch and its share of the loss


class ToldSteps:
    """The steps that a program reports, and the micro-batches since its last report."""

    def __init__(self, label: str, batches: Fetching, *, is_told: bool = False) -> None:
        """`is_told`: it is known that the program reports its steps."""
        self.skipped = False  # a gradient scaler left out a step since the last call
        self.has_samples = False  # the program says how many samples its steps have
        self._label, self._batches = label, batches
        self._patience: int | None = None  # steps to wait for a call; None: the code was not searched yet
        self._is_heard = is_told
        self._held: list[MicroBatch] = []

    @property
    def are_awaited(self) -> bool:
        """Whether only steps that the program reports count."""
        if self._is_heard:
            return True
        if self._patience is None:
            self._patience = MOST_STEPS_WITHOUT_CALL if any(map(_names_it, _of_the_program())) else 0
        return self._patience > 0

    def hold(self, fetched: Fetched, loss: Tensor) -> None:
        """Keep a micro-batch until the program reports its step."""
        self._held.append((fetched, loss))

    def stepped(self, *, skipped: bool) -> None:
        """Note an optimizer's step: after too many without a call, steps seen by hooks count again."""
        self.skipped |= skipped
        if not self._is_heard:
            self._patience = (self._patience or 0) - 1
            if not self._patience:
                self._held = []

    def end(self, loss: Any, samples: Any) -> list[MicroBatch]:
        """Return the micro-batches of the reported step. Raises `TargetError` if the report cannot be right."""
        self._is_heard, held, self._held = True, self._held, []
        if not held:  # no backward pass: gradients are computed in another way
            nothing = torch.full((), float("nan"))
            while (fetched := self._batches.take()) is not None:
                held.append((fetched, nothing))
        held = self._sized(held, samples)
        if loss is None:
            return held
        share = self._loss(loss) / len(held)
        return [(fetched, share) for fetched, _ in held]

    def _sized(self, held: list[MicroBatch], samples: Any) -> list[MicroBatch]:
        if samples is None and held:
            return held
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
            given = "no samples" if samples is None else f"samples={samples!r}"
            raise TargetError(
                f"{self._label} called autotune.step() with {given}. They are those that the step trained on, and "
                f"{'no DataLoader gave any' if samples is None else 'a whole number of at least 1'}. Write "
                f"autotune.step(loss=loss, samples=len(batch))."
            )
        self.has_samples = True
        if sum(fetched.samples for fetched, _ in held) == samples:
            return held
        held = held or [(Fetched(samples=samples, tokens=0, seconds=0.0), torch.full((), float("nan")))]
        even, more = divmod(samples, len(held))
        return [
            (Fetched(samples=even + (number < more), tokens=fetched.tokens, seconds=fetched.seconds), loss)
            for number, (fetched, loss) in enumerate(held)
        ]

    def _loss(self, loss: Any) -> Tensor:
        try:
            told = loss.detach() if isinstance(loss, Tensor) else torch.tensor(float(loss))
            return told.reshape(())
        except (TypeError, ValueError, RuntimeError) as error:
            raise TargetError(
                f"{self._label} called autotune.step() with a loss that is no number: {error}. It probably has one "
                f"entry per sample. Give its mean, or leave it out."
            ) from error


def _of_the_program() -> Iterator[ast.Module]:
    """Yield the code of `__main__` and of modules that it uses, directly or not, as far as they can call autotune.

    Installed packages are many and large: only their modules that import autotune at the top count. Packages in the
    program's own folder may be as large (1,700 modules for `run_clm.py` of transformers): only files that name autotune
    are parsed.
    """
    left, found, package = ["__main__"], {"__main__"}, sys.modules["autotune"]
    while left:
        module = sys.modules.get(left.pop())
        if not isinstance(module, ModuleType):
            continue
        values = tuple(vars(module).values())
        held = (one.__name__ if isinstance(one, ModuleType) else getattr(one, "__module__", None) for one in values)
        names = {name for name in held if isinstance(name, str)}
        is_library = is_installed(Path(getattr(module, "__file__", None) or ""))
        if not is_library or any(one is package or one is telling.step for one in values):
            text = _text(module)
            names |= set(_imported(text))
            if "autotune" in text:
                yield _parsed(text)
        new = {name for name in names if name.partition(".")[0] not in _OTHERS} - found
        found |= new
        left += new


def _text(module: ModuleType) -> str:
    file = Path(getattr(module, "__file__", None) or "")
    try:
        return "" if file.suffix in EXTENSION_SUFFIXES else file.read_text("utf-8", "replace")
    except OSError:
        return ""


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


def _imported(text: str) -> Iterator[str]:
    """Yield the absolute names that a text imports, also inside functions, and words that only look like it."""
    for module, several, plain in _IMPORT.findall(_COMMENT.sub("", text)):
        names = [name.split()[0] for name in (several or plain).split(",") if name.strip()]
        yield from (f"{module}.{name}" for name in names) if module else names
        yield module


def _names_it(tree: ast.Module) -> bool:
    """Return whether the code imports or calls `autotune.step` anywhere."""
    ours = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "autotune":
            if any(one.name == "step" for one in node.names):
                return True
        elif isinstance(node, ast.Import):
            ours |= {one.asname or "autotune" for one in node.names if one.name == "autotune"}
    return any(
        isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id in ours
        for call in calls(tree, "step")
    )
