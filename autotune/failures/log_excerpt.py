"""The useful part of the log of a failed process: the user's line that ran, and what was printed last. Pure."""

from __future__ import annotations

import re
from pathlib import Path

from autotune.harmless import cropped
from autotune.targets.commands.distributed import SAID_BY_LAUNCHERS
from autotune.targets.tracebacks import is_users, place_of, stack_frames

MOST_EXCERPT_LINES, MOST_LINE_CHARACTERS = 15, 200  # of an excerpt, and of each of its lines
# A stack of faulthandler (CPython 3.11): of a crash, or of a process that was asked for its stack.
_STACK = re.compile(r"^(Current thread|Thread) 0x[^\n]*\(most recent call first\):\n((?:  [^\n]*\n?)*)", re.MULTILINE)
_FATAL = re.compile(r"^(?:Fatal Python error: .*|Extension modules: .*)\n?", re.MULTILINE)
_TRACEBACK = re.compile(
    r"^(?:\[rank\d+\]: ?)?Traceback \(most recent call last\):\n(?:(?:\[rank\d+\]:)? .*\n)*.*\n?", re.MULTILINE
)
# One of which the log's tail has only the end.
_CUT_TRACEBACK = re.compile(r"\A(?!(?:\[rank\d+\]: ?)?Traceback ).*\n(?:(?:\[rank\d+\]:)? .*\n)+.*\n?")
_CALLED = re.compile(r'^(?:\[rank\d+\]:)? +File "(.+)", line', re.MULTILINE)
# torchrun reports the end of a rank with a table (torch 2.13, torch.distributed.elastic).
_TABLE = re.compile(r"^={10,}\n.* FAILED\n.*?^={10,}\n?", re.MULTILINE | re.DOTALL)
# The error repeats our words, and frames follow for a rank's stack.
_OURS = re.compile(r"^(?:autotune: .+ ended .*|rank \d+:)$\n?", re.MULTILINE)


def stopped_at(log: str) -> str:
    """Return the user's innermost line in the last stack of `log`, as `model.py:31 in loss`; empty if there is none."""
    frames = _user_frames(log)
    return place_of(*frames[0], Path.cwd()) if frames else ""


def excerpt(log: str) -> str:
    """Return the useful part of `log`, at most `MOST_EXCERPT_LINES` lines: the user's frames, then the last output.

    Left out are messages of other ranks and their launcher about a rank that ended, and frames of autotune and of
    torch.
    """
    frames = [f'  File "{file}", line {line} in {function}' for file, line, function in _user_frames(log)]
    text = _STACK.sub("", log)
    for noise in (_FATAL, _TABLE, SAID_BY_LAUNCHERS, _OURS):
        text = noise.sub("", text)
    text = _CUT_TRACEBACK.sub(lambda found: "" if _has_our_frame(found[0]) else found[0], text)
    text = _TRACEBACK.sub(lambda found: found[0] if _is_of_the_user(found[0]) else "", text)
    printed = [line.rstrip() for line in text.splitlines() if line.strip()]
    kept = frames[: MOST_EXCERPT_LINES // 2]
    room = MOST_EXCERPT_LINES - len(kept)
    return "\n".join(cropped(line, MOST_LINE_CHARACTERS) for line in [*printed[-room:], *kept])


def _user_frames(log: str) -> list[tuple[str, str, str]]:
    """Return file, line and function of the user's frames, innermost first, in the thread that crashed, or else in one.

    The last stacks of the log are the ones at its end.
    """
    stacks = [(head, stack_frames(frames)) for head, frames in _STACK.findall(log)]
    own = [(head, [one for one in frames if is_users(Path(one[0]))]) for head, frames in stacks]
    known = [(head, frames) for head, frames in own if frames]
    current = [frames for head, frames in known if head == "Current thread"]
    return current[-1] if current else known[-1][1] if known else []


def _is_of_the_user(trace: str) -> bool:
    """Return whether the user's program printed a traceback: autotune's are those of ranks that miss another rank."""
    files = [Path(one) for one in _CALLED.findall(trace)]
    ends_here = any("autotune" in one.parts and one.name == "__main__.py" for one in files)
    return not ends_here and any(map(is_users, files))


def _has_our_frame(trace: str) -> bool:
    """Return whether a function of autotune called the user's program, or was called by it."""
    return any("autotune" in Path(one).parts for one in _CALLED.findall(trace))
