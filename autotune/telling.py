"""`autotune.step`: one line by which a training loop reports its optimizer steps itself. Imports nothing.

Only a probe of a command listens. Outside of a probe a call does nothing, and takes less than a microsecond.
"""

from collections.abc import Callable
from typing import Any

listener: Callable[[Any, Any], None] | None = None  # set within a probe


def step(*, loss: Any = None, samples: int | None = None) -> None:
    """Report that one optimizer step was taken; for loops that cannot be observed, at the end of each step.

    These calls count instead of observed steps: one call is one step, however many optimizers stepped, or none.
    `samples` is how many the step trained on, over all its micro-batches; None means those of the DataLoader's batches.
    `loss` is a tensor of one element or a number; None means that of the backward passes. Outside of a probe nothing is
    checked.
    """
    if listener is not None:
        listener(loss, samples)
