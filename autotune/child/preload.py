"""What a template imports: torch, and the installed modules that the target's file imports before it does anything.

Never code of the user, which may change between two probes, and never what comes after such code: it may set a
variable that a library reads when it is imported. So a statement after the first that is not an import of an
installed or a standard module is left alone, and the probe runs it.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path

from autotune.targets.reference import Reference, parse

OWN = (
    "torch",
    "autotune.child.run", "autotune.targets.build", "autotune.targets.inspection",
    "torch._dynamo",  # imported by the first optimizer: half a second
)  # fmt: skip
_INSTALLED = {"site-packages", "dist-packages"}  # folders of pip and of Debian
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """OpenBLAS starts its threads when it is loaded, unless this variable says that there is one."""
    before = os.environ.get(_BLAS_THREADS)
    os.environ[_BLAS_THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[_BLAS_THREADS]
        if before is not None:
            os.environ[_BLAS_THREADS] = before


def import_own() -> None:
    """Import what every probe imports whatever its target."""
    for name in OWN:
        import_module(name)


def statements(target: str | None) -> list[ast.stmt]:
    """The import statements of the target's file that may be run before it, in their order."""
    reference = _reference(target)
    file = reference and _file(reference)
    if not reference or not file:
        return []
    try:
        text = file.read_text()
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError):
        return []
    if re.search(r"\b(environ|putenv)\b", text) and "TORCH" in text:
        return []  # it may set a variable that torch._dynamo reads when it is imported
    root = file.parent if reference.file else Path.cwd()
    found: list[ast.stmt] = []
    for statement in tree.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue  # the docstring
        kinds = {_kind(name, root) for name in _roots(statement)}
        if not kinds or "user" in kinds:
            break
        if "installed" in kinds:
            found.append(statement)
    return found


def run(statement: ast.stmt) -> None:
    """Run an import statement. Raises whatever the modules raise."""
    exec(compile(ast.Module([statement], []), "<template>", "exec"), {"__name__": "autotune.template"})


def shadowed(target: str | None, modules: set[str]) -> str:
    """One of `modules` that the probe would find beside the target instead, whose folder it looks into first."""
    reference = _reference(target)
    if reference is None:
        return ""
    root = reference.file.parent if reference.file else Path.cwd()
    return next((name for name in sorted({name.partition(".")[0] for name in modules}) if _is_beside(name, root)), "")


def _reference(target: str | None) -> Reference | None:
    try:
        return None if target is None else parse(target)
    except Exception:
        return None  # the probe will say what is wrong with it


def _file(reference: Reference) -> Path | None:
    """The file of the target; None for a module whose packages have code of their own, which would run before it."""
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


def _roots(statement: ast.stmt) -> list[str]:
    """The top packages that an import statement names; empty for any other statement."""
    if isinstance(statement, ast.Import):
        return [alias.name.partition(".")[0] for alias in statement.names]
    if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        return [statement.module.partition(".")[0]]
    return []


def _kind(name: str, root: Path) -> str:
    """Whether a top package is `standard`, `installed`, or else the `user`'s."""
    if _is_beside(name, root):
        return "user"
    if name in sys.stdlib_module_names:
        return "standard"
    spec = PathFinder.find_spec(name)
    place = Path(spec.origin or "").parts if spec else ()
    return "installed" if _INSTALLED.intersection(place) else "user"


def _is_beside(name: str, root: Path) -> bool:
    return (root / f"{name}.py").exists() or (root / name / "__init__.py").exists()
