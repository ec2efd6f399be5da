"""Finds the lines of the user's own code in a traceback; all other frames do not help its reader."""

from __future__ import annotations

import re
import site
import sysconfig
import traceback
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path
from types import CodeType, FrameType

import autotune
from autotune.failures.classify import words_of
from autotune.harmless import cropped
from autotune.targets.installed import is_installed

_OURS = Path(autotune.__file__).resolve().parent
_LIBRARIES = tuple(
    Path(place).resolve()
    for place in {
        *(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
    }
)
MOST_ERROR_LINES, MOST_ERROR_CHARACTERS = 20, 2000  # of a message below a traceback
_TRACEBACK = "Traceback (most recent call last):"
_WORKER_MARK = f"Original {_TRACEBACK}"  # torch._utils.ExceptionWrapper, torch 2.13
_WRAPPED = re.compile(r"Caught \w+ (in .+)\.$", re.MULTILINE)  # the line before the mark
_STACK_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)  # of faulthandler, CPython 3.11
_WORKER_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d+), in (.+)$', re.MULTILINE)


def user_frames(error: BaseException, root: Path) -> tuple[str, str]:
    """Return the innermost `file:line in function` of the user's code, and the traceback with only the user's frames.

    The user's code is all files under `root`; if the traceback has none of these, all files that belong neither to the
    standard library, nor to an installed package, nor to autotune. Frames of a DataLoader worker, which arrive as text
    in the message, count as innermost. The first part is empty if there is no such frame; the traceback always ends
    with the exception itself.
    """
    root = root.resolve()
    for link in chain(error):
        frames = [frame for frame in _all_frames(link) if is_users(Path(frame.filename))]
        frames = [frame for frame in frames if _resolved(frame).is_relative_to(root)] or frames
        if frames:
            last = frames[-1]
            text = "".join(traceback.format_list(frames))
            return place_of(last.filename, last.lineno, last.name, root), f"{text}{error_lines(error)}"
    return "", error_lines(error)


def place_of(file: str, line: int | str | None, function: str, root: Path) -> str:
    """Return `model.py:31 in loss`, relative to `root` where the file lies in it."""
    place = Path(file).resolve()
    return f"{place.relative_to(root) if place.is_relative_to(root) else place}:{line} in {function}"


def calling_place(frame: FrameType | None) -> str:
    """Return the innermost of the user's lines that `frame` was called from, as `train.py:12`; empty: there is none."""
    while frame is not None and not is_users(Path(frame.f_code.co_filename)):
        frame = frame.f_back
    return "" if frame is None else line_of(frame.f_code.co_filename, frame.f_lineno)


def line_of(file: str, line: int) -> str:
    """Return `train.py:12`, relative to the working folder where the file lies in it."""
    return place_of(file, line, "", Path.cwd()).removesuffix(" in ")


def definition_line(function: object) -> str:
    """Return the line on which that function of the user's begins, as `model.py:12`; empty: it is not the user's."""
    code = getattr(function, "__code__", None)
    is_own = isinstance(code, CodeType) and is_users(Path(code.co_filename))
    return line_of(code.co_filename, code.co_firstlineno) if code is not None and is_own else ""


def stack_frames(stack: str) -> list[tuple[str, str, str]]:
    """Return file, line and function of each frame in a stack that faulthandler wrote, innermost first."""
    return _STACK_FRAME.findall(stack)


def error_text(error: BaseException) -> str:
    """Return type and message; for an exception from a DataLoader worker, those of the original, and the worker."""
    text = words_of(error)
    if _WORKER_MARK not in text:
        return f"{type(error).__name__}: {text.strip()}".removesuffix(": ")
    # After the last traceback: those before it are of the errors that the worker was handling.
    lines = text.rpartition(_TRACEBACK)[2].splitlines()
    first, *more = list(dropwhile(lambda line: not line[:1].strip(), lines)) or text.splitlines()
    where = _WRAPPED.search(text)
    return "\n".join([f"{first} ({where[1]})" if where else first, *more]).strip()


def error_lines(error: BaseException) -> str:
    """Return the first lines of `error_text`: the message of `load_state_dict`, for example, says all in later ones."""
    return cropped("\n".join(error_text(error).splitlines()[:MOST_ERROR_LINES]), MOST_ERROR_CHARACTERS)


def error_line(error: BaseException) -> str:
    """Return the first line of `error_text`."""
    return error_text(error).partition("\n")[0]


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and its causes, outermost first."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _all_frames(error: BaseException) -> list[traceback.FrameSummary]:
    frames = list(traceback.extract_tb(error.__traceback__))
    if isinstance(error, SyntaxError) and error.filename:  # the faulty line did not run, so it has no frame
        frames.append(traceback.FrameSummary(error.filename, error.lineno or 0, "<module>"))
    worker = words_of(error).partition(_WORKER_MARK)[2]
    found = _WORKER_FRAME.finditer(worker)
    return frames + [traceback.FrameSummary(match[1], int(match[2]), match[3]) for match in found]


def is_users(file: Path) -> bool:
    """Return whether code in this file is the user's own."""
    place = file.resolve()
    if str(file).startswith("<") or place.is_relative_to(_OURS):
        return False
    if is_installed(place):
        return False
    return not any(place.is_relative_to(library) for library in _LIBRARIES)


def _resolved(frame: traceback.FrameSummary) -> Path:
    return Path(frame.filename).resolve()
