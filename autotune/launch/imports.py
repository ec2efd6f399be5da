"""What a target's file imports and sets before anything else: a fork server may do it in advance.

It never imports code of the user, which may change between two probes, nor anything that follows such code, which may
set a variable that a library reads when it is imported. So nothing counts after the first statement that is neither an
import of installed or standard modules, nor `os.environ["NAME"] = "text"`, nor hides warnings. If that imports a module
of the user's, what this imports at its top counts, too. Files are parsed and not run.

torch is imported before the target, in a fresh process, too. What the file sets for it at its top, such as
OMP_NUM_THREADS, would come too late, so that processes start with it.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder, all_suffixes
from pathlib import Path
from typing import NamedTuple

from autotune.core import codec
from autotune.core.forking import MESSAGE_BYTES, Imports
from autotune.errors import AutotuneError
from autotune.targets.commands.program import read
from autotune.targets.installed import is_installed
from autotune.targets.reference import TargetPlace, parse
from autotune.targets.variables import is_read_early

WITH_OPTIMIZERS = "import torch._dynamo"  # the first optimizer imports it, in half a second
_SUFFIXES = tuple(all_suffixes())
_UNREADABLE = (AutotuneError, OSError, ValueError, SyntaxError, RecursionError, MemoryError)  # last two: the parser's


class _Assignment(NamedTuple):
    """`os.environ["NAME"] = "text"`, or `os.environ.setdefault("NAME", "text")`."""

    name: str
    text: str
    is_default: bool


def imports_of(target: str | None) -> Imports:
    """Return the imports of the target's file; none if it cannot be read, which the probe will report."""
    try:
        imports = _imports(None if target is None else parse(target))
        is_short = len(codec.encode(imports)) <= MESSAGE_BYTES
    except _UNREADABLE:
        return Imports()
    return imports if is_short else Imports()


def variables_of(target: str | None) -> dict[str, str]:
    """Return what the target's file sets before it imports torch, of the variables that torch reads when imported.

    Only plain texts count, set outside of functions and conditions before the first import of an installed module.
    """
    try:
        reference = parse(target) if target else None
        file = _file(reference) if reference else None
        return _set_early(ast.parse(file.read_text())) if file else {}
    except _UNREADABLE:
        return {}


def _set_early(tree: ast.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    for statement in tree.body:
        if not all(_is_standard(name) for part in ast.walk(statement) for name in _packages(part)):
            break
        if (assigned := _assignment(statement)) and is_read_early(assigned.name):
            is_kept = assigned.is_default and (assigned.name in found or assigned.name in os.environ)
            found |= {} if is_kept else {assigned.name: assigned.text}
    return found


def _imports(reference: TargetPlace | None) -> Imports:
    file = None if reference is None else _file(reference)
    text = "" if file is None else file.read_text()
    tree = ast.parse(text)
    known = sum(_assignment(statement) is not None for statement in tree.body)
    if len(re.findall(r"\b(?:environ|putenv)\b", text)) > known and "TORCH" in text:  # which torch._dynamo reads
        return Imports()
    folder = file.parent if file and not (reference and reference.module) else Path.cwd()
    beside = _modules_in(folder)
    return Imports(
        statements=(WITH_OPTIMIZERS, *_Beginning(folder, beside, _set_early(tree)).of(tree)[0]),
        program=reference.label if reference else "",
        beside=tuple(sorted(beside)),
    )


def _modules_in(folder: Path) -> set[str]:
    """Return the names that could be imported from there; a folder counts as a package if it has code."""
    files = {entry.name.partition(".")[0] for entry in folder.iterdir() if entry.name.endswith(_SUFFIXES)}
    packages = {inner.parent.name for suffix in _SUFFIXES for inner in folder.glob(f"*/__init__{suffix}")}
    return {name for name in files | packages if name.isidentifier()}


class _Beginning:
    """What files import and set before anything else. `set_before`: variables that the process starts with."""

    def __init__(self, folder: Path, beside: set[str], set_before: Mapping[str, str]) -> None:
        self._folder, self._beside, self._set_before = folder, beside, set_before
        self._files = set[Path]()  # that were looked at: they may import one another

    def of(self, tree: ast.Module) -> tuple[list[str], bool]:
        """Return the statements, and whether they are all that the file does."""
        found: list[str] = []
        for statement in tree.body:
            if _changes_nothing(statement):
                continue
            if assigned := _assignment(statement):
                found += [] if assigned.name in self._set_before else [f"import os; {ast.unparse(statement)}"]
                continue
            names = _packages(statement)
            if not names or not all(map(self._is_of_others, names)):
                return found + self._of_own(statement), False
            found += [] if all(map(_is_standard, names)) else [ast.unparse(statement)]
        return found, True

    def _of_own(self, statement: ast.stmt) -> list[str]:
        """Return the statements at the top of the module of the user's that this statement imports."""
        found: list[str] = []
        for file in _own_files(statement, self._folder):
            text = file.read_text()
            if file in self._files or "environ" in text or "putenv" in text:
                break
            self._files.add(file)
            statements, is_all = self.of(ast.parse(text))
            found += statements
            if not is_all:
                break
        return found

    def _is_of_others(self, name: str) -> bool:
        return name not in self._beside and (_is_standard(name) or _is_installed(name))


def _own_files(statement: ast.stmt, folder: Path) -> list[Path]:
    """Return the files that the import of one module of the user's runs, in turn; none for any other statement."""
    if isinstance(statement, ast.Import) and len(statement.names) == 1:
        path = statement.names[0].name
    elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        path = statement.module
    else:
        return []
    *packages, last = path.split(".")
    places = [folder.joinpath(*packages[: count + 1]) / "__init__.py" for count in range(len(packages))]
    module = folder.joinpath(*packages, last)
    places.append(file if (file := module.with_suffix(".py")).is_file() else module / "__init__.py")
    return [place for place in places if place.is_file()]


def _changes_nothing(statement: ast.stmt) -> bool:
    """Return whether an import after the statement is as one before it: after a docstring, or with fewer warnings."""
    match statement:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=called, args=[ast.Constant(value="ignore"), *_])):
            return ast.unparse(called) in ("warnings.filterwarnings", "warnings.simplefilter")
    return False


def _packages(statement: ast.AST) -> list[str]:
    """Return the top packages that an import statement names; none for any other statement."""
    if isinstance(statement, ast.Import):
        return [alias.name.partition(".")[0] for alias in statement.names]
    if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        return [statement.module.partition(".")[0]]
    return []


def _assignment(statement: ast.stmt) -> _Assignment | None:
    """Return what the statement sets in `os.environ`; None for any other statement."""
    match statement:
        case ast.Assign(
            targets=[ast.Subscript(value=place, slice=ast.Constant(value=str(name)))],
            value=ast.Constant(value=str(text)),
        ):
            is_default = False
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=place, attr="setdefault"),
                args=[ast.Constant(value=str(name)), ast.Constant(value=str(text))],
            )
        ):
            is_default = True
        case _:
            return None
    return _Assignment(name, text, is_default) if ast.unparse(place) == "os.environ" else None


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
