"""Turns an exception of the user's code into a `TargetError` that begins with the user's own line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune import failures
from autotune.errors import TargetError
from autotune.results import Outcome
from autotune.targets.frames import chain, headline, user_frames


@contextmanager
def blaming(doing: object, root: Path) -> Iterator[None]:
    """While the user's code does `doing`, report what it raises as its own fault.

    `doing` is made a text only where something was raised from no line of the user's.

    Out of memory and device faults pass through unchanged: they are for the probe to classify, not the user's bugs.
    """
    try:
        yield
    except Exception as error:
        frame, trace = user_frames(error, root)
        ours = next((link for link in chain(error) if isinstance(link, TargetError)), None)
        if ours is not None:  # perhaps wrapped by something on its way up
            ours.traceback = ours.traceback or (trace.removesuffix(headline(error)) if frame else "")
            if ours is error:
                raise
            raise ours from None
        if failures.classify(failures.describe(error), memory_share=None)[0] is not Outcome.USER_ERROR:
            raise
        raise TargetError(f"{frame or doing}: {headline(error)}", traceback=trace if frame else "") from error
