"""`autotune.step`: one line by which a training loop tells its optimizer steps itself. Imports nothing.

Only a probe of a command listens. Outside of one a call does nothing, and takes less than a microsecond.
"""

from collections.abc import Callable
from typing import Any

listener: Callable[[Any, Any], None] | None = None  # set within a probe


def step(*, loss: Any = None, samples: int | None = None) -> None:
    """Tell that one optimizer step was taken, for loops that nobody can see into; write it at the end of each step.

    Where it is called, it is the truth: one call is one step, however many optimizers stepped, or none. `samples`: how
    many the step trained on, over all its micro-batches; None: those of the DataLoader's batches. `loss`: a tensor of
    one element or a number; None: that of the backward passes. Outside of a probe nothing is checked.
    """
    if listener is not None:
        listener(loss, samples)
