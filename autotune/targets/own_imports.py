"""The user's own modules that a program imports, directly or not: found as Python would find them, and not imported.

Not covered: what only its run decides (names that are computed, folders that it adds to `sys.path`), compiled modules,
and files that are read as data.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import resolve_name
from pathlib import Path

from autotune.targets.tracebacks import is_users

MOST_FILES, MOST_TEXT_BYTES = 200, 2**20  # of all of them: a large repository would else take seconds to parse
MOST_NAMES = 5000  # looked up: 0.3 s if none is found
_PACKAGE_FILES = ("__init__.py", "__main__.py")
_WHOLE_STATEMENTS = re.compile(rb"(?s).*\n(?=[A-Za-z_@])")  # up to the last line that begins one of the module's
_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")  # of a statement: lists of what it contains


def own_imports(file: Path, module: str = "") -> dict[str, bytes]:
    """Return the contents of the user's own Python files that `file` imports, by the names of their modules.

    They count wherever they lie, so that the working folder does not matter: Python looks into the folder of `file`
    (for a program that is named as a `module`, the working folder) and along its path. The order is that in which their
    names are met. Beyond `MOST_FILES`, `MOST_TEXT_BYTES` or `MOST_NAMES` no further name is looked up; of `file` the
    first `MOST_TEXT_BYTES` are read, too. Files without code, as most `__init__.py` are, are left out. Raises `OSError`
    if `file` itself cannot be read.
    """
    modules, package = _Modules(Path.cwd() if module else file.resolve().parent), _package(module, file)
    met, found, left = {file.resolve()}, dict[str, bytes](), MOST_TEXT_BYTES
    names = deque([*filter(None, [package]), *_imported(_start_of(file), package)])  # a package runs before its parts
    while names and left and len(found) < MOST_FILES and len(modules.known) < MOST_NAMES:
        for name, place in modules.files_of(names.popleft()):
            if place.resolve() in met:
                continue
            met.add(place.resolve())
            with suppress(OSError), place.open("rb") as opened:
                text = opened.read(left)
                left -= len(text)
                if text.strip():
                    found[name] = text
                    names += _imported(text, _package(name, place))
    return found


def _start_of(file: Path) -> bytes:
    """Return the content of a file, of a longer one than `MOST_TEXT_BYTES` the whole statements at its start."""
    with file.open("rb") as opened:
        text = opened.read(MOST_TEXT_BYTES)
        if not opened.read(1):
            return text
    whole = _WHOLE_STATEMENTS.match(text)
    return whole[0] if whole else b""


def _package(module: str, file: Path) -> str:
    """Return the package to which the relative imports of a module refer; empty: to none."""
    return module if file.name in _PACKAGE_FILES else module.rpartition(".")[0]


def _imported(text: bytes, package: str) -> Iterator[str]:
    """Yield what the import statements of a file name, with dots; nothing if it cannot be parsed.

    What is imported from a module may be a module in it: nobody knows without a look at its folder.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on its literals: Python gives them when it runs the file
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: the parser's
        return
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # relative to no package, or out of it
                base = resolve_name("." * node.level + (node.module or ""), package)
                yield from (f"{base}.{one.name}" for one in node.names)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all statements that may run: an import is no expression, and most of a tree is expressions."""
    left: deque[ast.AST] = deque([tree])
    while left:
        yield (node := left.popleft())
        for part in ("orelse",) if _is_for_type_checkers(node) else _BLOCKS:
            left += getattr(node, part, ())


def _is_for_type_checkers(node: ast.AST) -> bool:
    """Return whether it is `if TYPE_CHECKING:` or `if typing.TYPE_CHECKING:`, whose body never runs."""
    test = getattr(node, "test", None)
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


class _Modules:
    """Where modules lie for a program whose imports are looked up in `root` first."""

    def __init__(self, root: Path) -> None:
        importlib.invalidate_caches()  # a folder may have got files since this process looked into it
        others = sys.path if sys.flags.safe_path else sys.path[1:]  # the first is the folder of this process's program
        self.known: dict[str, tuple[Path | None, list[str]]] = {
            "": (None, [str(root), *others]), "autotune": (None, []),  # in any checkout, and not only the one that runs
        }  # fmt: skip

    def files_of(self, name: str) -> Iterator[tuple[str, Path]]:
        """Yield the user's files that an import of `name` runs, packages first, with the names of their modules."""
        module = ""
        for part in name.split("."):
            package, module = module, f"{module}.{part}".lstrip(".")
            if module not in self.known:
                self.known[module] = self._find(part, package)
            file, _ = self.known[module]
            if file is not None:
                yield module, file

    def _find(self, name: str, package: str) -> tuple[Path | None, list[str]]:
        """Return the file of the module `name` in `package`, and where its own modules lie; neither if not the user's.

        Python's finder is asked for the last part of the name alone: for a longer one it looks up the package in
        `sys.modules`, and the package was not imported.
        """
        spec = PathFinder.find_spec(name, self.known[package][1])
        if spec is None and not package:
            with suppress(Exception):  # the finders of packages that are installed editable may raise anything
                others = (one.find_spec(name, None) for one in sys.meta_path if one is not PathFinder)
                spec = next(filter(None, others), None)
        if spec is None:
            return None, []
        file = Path(spec.origin) if spec.origin and spec.has_location else None  # none: built in, or a mere folder
        if file is not None and not is_users(file):
            return None, []
        is_python = file is not None and file.suffix == ".py"
        return file if is_python else None, list(spec.submodule_search_locations or ())
