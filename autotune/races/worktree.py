"""The code of another revision, which git checks out next to the working tree for the duration of a race."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import autotune
from autotune.errors import TargetError, UsageError
from autotune.launch.processes import insist
from autotune.targets.commands.command import Command, is_command
from autotune.targets.reference import parse
from autotune.targets.source import source_of

OWN = Path(autotune.__file__).parents[1]  # the folder that this autotune is imported from, which measures both sides
CACHES = ("__pycache__",)  # of the working tree's code
_ABSOLUTE = re.compile(r"(?<![^\s=:,'\"])/")  # first character of an absolute path that is a word, or a value in one
_PART = re.compile(r"/?[^\s/=:,'\"]+")


@dataclass(frozen=True, kw_only=True)
class Worktree:
    """A checked out revision."""

    top: Path  # of the user's working tree
    place: Path  # of the checked out one
    commit: str

    @property
    def folder(self) -> Path:
        """The folder in it that corresponds to the working folder of this process."""
        return self.counterpart(Path.cwd())

    def counterpart(self, path: Path) -> Path:
        """Return the place of the same file or folder in it."""
        return self.place / path.resolve().relative_to(self.top)

    def target(self, text: str) -> str:
        """Return a target's text with absolute paths of the working tree replaced by those in it.

        Raises `UsageError` for code that is not checked out, which would race against itself.
        """
        source = _source(text)
        if source is not None and not (self.folder / self._moved(str(source))).resolve().is_relative_to(self.place):
            raise UsageError(
                f"{source} is the same code at --baseline-commit as now. It probably lies outside of the repository "
                f"{self.top}, or git ignores it. Name code that git tracks, or name both contestants as files."
            )
        if is_command(text):
            return Command.of([self._moved(word) for word in Command.split(text)]).text
        return self._moved(text)

    def _moved(self, word: str) -> str:
        """Return one word with its absolute paths into the working tree, also those through links, replaced."""
        for start in reversed([found.start() for found in _ABSOLUTE.finditer(word)]):
            ends = [start + found.end() for found in _PART.finditer(word[start:])]
            for end in ends:  # the shortest one inside: links below may lead out again
                if (path := Path(word[start:end])).resolve().is_relative_to(self.top):
                    word = f"{word[:start]}{self.counterpart(path)}{word[end:]}"
                    break
        return word

    @property
    def environ(self) -> dict[str, str]:
        """The variables that lead imports to its code, for packages of the working tree that were installed editable.

        Not covered: packages with compiled parts, which are not built again.
        """
        installed = sys.path if sys.flags.safe_path else sys.path[1:]  # the first is the program's own folder
        finders = [module for name, module in list(sys.modules.items()) if name.startswith("__editable__")]
        packages = [Path(path).parent for one in finders for path in getattr(one, "MAPPING", {}).values()]
        found = [self.counterpart(path) for path in (*map(Path, installed), *packages) if self._leads_to_code(path)]
        before = os.environ.get("PYTHONPATH", "")
        return {"PYTHONPATH": os.pathsep.join(filter(None, (*dict.fromkeys(map(str, found)), before)))}

    def _leads_to_code(self, path: Path) -> bool:
        if not path.resolve().is_relative_to(self.top) or path.resolve() == OWN:
            return False
        there = self.counterpart(path)
        return there.is_dir() and there.resolve().is_relative_to(self.place)  # and no link leads back


@contextmanager
def worktree(revision: str, place: Path) -> Iterator[Worktree]:
    """Check `revision` out in folder `place`; remove it when the `with` block ends, also after an interrupt.

    What git ignores (data, environments) is linked into it. Raises `UsageError` if there is no such revision.
    """
    top = Path(_git(["rev-parse", "--show-toplevel"], revision)).resolve()
    commit = _git(["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"], revision)
    found = Worktree(top=top, place=place.resolve(), commit=commit)
    try:
        _git(["worktree", "add", "--detach", str(found.place), commit], revision)
        if not found.folder.is_dir():
            raise UsageError(
                f"The folder {Path.cwd().relative_to(top)} is not in {revision}. It was probably made since. "
                f"Go to a folder that both have, and name the contestants from there."
            )
        _link_ignored(found, revision)
        yield found
    finally:
        insist(lambda: _remove(found))


def _link_ignored(found: Worktree, revision: str) -> None:
    asked = ["ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"]
    for name in filter(None, _git(asked, revision, at=found.top).split("\0")):
        source, link = found.top / name, found.place / name
        is_ours = found.place.is_relative_to(source) or source.is_relative_to(found.place.parent)
        if is_ours or source.name in CACHES or os.path.lexists(link):
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(source)


def _source(text: str) -> Path | None:
    """Return the code of a target: its file, or that of an installed package; None: its inspection says more."""
    try:
        reference, file = parse(text), source_of(text)
    except TargetError:
        return None
    if file is not None or reference is None or not reference.module:
        return file
    package = find_spec(reference.module.partition(".")[0])
    places = [] if package is None else [package.origin, *(package.submodule_search_locations or ())]
    return next((Path(place) for place in places if place), None)


def _remove(found: Worktree) -> None:
    shutil.rmtree(found.place, ignore_errors=True)  # of a link, only the link itself
    _run(["worktree", "remove", "--force", "--force", str(found.place)], found.top)  # twice: a locked one too


def _git(words: list[str], revision: str, at: Path | None = None) -> str:
    """Return the output of git. Raises `UsageError` with the words of git."""
    try:
        ended = _run(words, at)
    except FileNotFoundError as error:
        raise UsageError(
            f"--baseline-commit {revision} needs git, and there is none. It is probably not installed. Install it, or "
            f"name both contestants as files."
        ) from error
    if ended.returncode:
        said = ended.stderr.strip().splitlines()
        raise UsageError(
            f"--baseline-commit {revision} cannot be checked out: {said[-1] if said else 'git knows no such revision'}."
            f" The revision was probably mistyped, or {Path.cwd()} is in no git repository. `git log` lists revisions."
        )
    return ended.stdout.strip()


def _run(words: list[str], at: Path | None) -> subprocess.CompletedProcess[str]:
    """Run git to its end: without the variables that git gives to hooks, without hooks, and unaffected by Ctrl-C."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    line = ["git", "-c", f"core.hooksPath={os.devnull}", *words]
    with ThreadPoolExecutor(1) as pool:  # an interrupt is raised in the main thread alone, at any moment of it
        git = pool.submit(
            subprocess.run, line, cwd=at, env=environ, capture_output=True, text=True, start_new_session=True
        )
        insist(lambda: wait([git]))  # if killed, git would leave a lock, and processes that check out
        return git.result()
