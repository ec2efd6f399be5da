"""The installed modules that a target's file imports before anything else: a fork server may import them in advance.

It never imports code of the user, which may change between two probes, nor anything that follows such code, which may
set a variable that a library reads when it is imported. So nothing counts after the first statement that is not an
import of installed or standard modules. The file is parsed and not run.
"""

from __future__ import annotations

import ast
import re
import sys
from importlib.machinery import PathFinder, all_suffixes
from pathlib import Path

from autotune.core import codec
from autotune.core.forking import MESSAGE_BYTES, Imports
from autotune.errors import AutotuneError
from autotune.targets.commands.program import read
from autotune.targets.installed import is_installed
from autotune.targets.reference import TargetPlace, parse

WITH_OPTIMIZERS = "import torch._dynamo"  # the first optimizer imports it, in half a second
_SUFFIXES = tuple(all_suffixes())


def imports_of(target: str | None) -> Imports:
    """Return the imports of the target's file; none if it cannot be read, which the probe will report."""
    try:
        imports = _imports(None if target is None else parse(target))
        is_short = len(codec.encode(imports)) <= MESSAGE_BYTES
    except (AutotuneError, OSError, ValueError, SyntaxError, RecursionError, MemoryError):  # last two: the parser's
        return Imports()
    return imports if is_short else Imports()


def _imports(reference: TargetPlace | None) -> Imports:
    file = None if reference is None else _file(reference)
    text = "" if file is None else file.read_text()
    tree = ast.parse(text)
    if re.search(r"\b(environ|putenv)\b", text) and "TORCH" in text:  # which torch._dynamo reads
        return Imports()
    beside = _modules_in(file.parent if file and not (reference and reference.module) else Path.cwd())
    return Imports(
        statements=(WITH_OPTIMIZERS, *_leading(tree, beside)),
        program=reference.label if reference else "",
        beside=tuple(sorted(beside)),
    )


def _modules_in(folder: Path) -> set[str]:
    """Return the names that could be imported from there; a folder counts as a package if it has code."""
    files = {entry.name.partition(".")[0] for entry in folder.iterdir() if entry.name.endswith(_SUFFIXES)}
    packages = {inner.parent.name for suffix in _SUFFIXES for inner in folder.glob(f"*/__init__{suffix}")}
    return {name for name in files | packages if name.isidentifier()}


def _leading(tree: ast.Module, beside: set[str]) -> tuple[str, ...]:
    found = []
    for statement in tree.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue  # the docstring
        names = _packages(statement)
        if not names or not all(name not in beside and (_is_standard(name) or _is_installed(name)) for name in names):
            break
        if not all(map(_is_standard, names)):
            found.append(ast.unparse(statement))
    return tuple(found)


def _packages(statement: ast.stmt) -> list[str]:
    """Return the top packages that an import statement names; none for any other statement."""
    if isinstance(statement, ast.Import):
        return [alias.name.partition(".")[0] for alias in statement.names]
    if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        return [statement.module.partition(".")[0]]
    return []


def _is_standard(name: str) -> bool:
    return name in sys.stdlib_module_names


def _is_installed(name: str) -> bool:
    spec = PathFinder.find_spec(name)
    return spec is not None and is_installed(Path(spec.origin or ""))


def _file(reference: TargetPlace) -> Path | None:
    """Return the target's file; None for a module whose packages have code of their own, which would run first."""
    if reference.command is not None:
        program = read(reference.command.present())
        reference = TargetPlace(file=program.file, module=program.module)
    if reference.file:
        return reference.file
    *packages, name = reference.module.split(".")
    place = Path.cwd()
    for package in packages:
        place /= package
        begin = place / "__init__.py"
        if begin.exists() and begin.read_bytes().strip():
            return None
    return place / f"{name}.py"
