"""Turns an exception of the user's code into a `TargetError` that begins with the user's own line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.core.results import Outcome
from autotune.errors import TargetError
from autotune.failures import classify
from autotune.targets.tracebacks import chain, error_line, error_lines, user_frames

# torch 2.13: "mat1 and mat2 must have the same dtype, but got Double and Float" (Linear), "Input type (double) and bias
# type (float) should be the same" (convolutions), "Found dtype Double but expected Float" (backward of a loss).
_DOUBLE = re.compile(r"\bdouble\b.*\bfloat\b|\bfloat\b.*\bdouble\b", re.IGNORECASE)
_PIN = re.compile(r"cannot pin '.*' only dense CPU tensors can be pinned")  # torch 2.11 and 2.13, aten/src/ATen/native
_HINTS = (
    (
        _DOUBLE,
        ". The batch is float64, probably because NumPy made it, and the model computes in float32. Convert the "
        'samples in dataset(): x.astype("float32"), or x.float().',
    ),
    (
        _PIN,
        ". The samples are probably on the GPU already, and a loader copies them there from the host. Keep them on the "
        "CPU in dataset(), or cut batches on the GPU yourself: batch(batch_size, device).",
    ),
)


@contextmanager
def blaming(doing: object, root: Path) -> Iterator[None]:
    """Raise errors of the user's code, while it does `doing`, as `TargetError` with the user's own line.

    `doing` is used in the message only if no line of the user's raised the error.

    Out of memory and device faults pass through unchanged: they are for the probe to classify, not the user's bugs.
    """
    try:
        yield
    except Exception as error:
        frame, trace = user_frames(error, root)
        ours = next((link for link in chain(error) if isinstance(link, TargetError)), None)
        if ours is not None:  # perhaps wrapped by another exception
            ours.traceback = ours.traceback or (trace.removesuffix(error_lines(error)) if frame else "")
            if ours is error:
                raise
            raise ours from None
        if classify.classify(classify.describe(error), memory_share=None)[0] is not Outcome.USER_ERROR:
            raise
        said = f"{frame or doing}: {error_line(error)}{_hint(str(error))}"
        raise TargetError(said, traceback=trace if frame else "") from error


def _hint(message: str) -> str:
    """Return what to do about an error whose cause torch does not name; often nothing."""
    return next((hint for pattern, hint in _HINTS if pattern.search(message)), "")
