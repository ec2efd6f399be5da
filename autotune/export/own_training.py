"""What is printed in place of a loop for a target that takes its steps by code of its own, which stays as it is."""

from __future__ import annotations

from autotune.export.data import TRAINING_STEP, ExportedData


def kept(
    data: ExportedData,
    *,
    batch: tuple[str, ...] = (),
    context: str = "",
    backward: str = "",
    update: str = "",
    accumulation: str = "",
) -> tuple[str, ...]:
    """Return comments: the user's own code stays, and what belongs into it, where that is not "".

    `batch` are statements about each batch, `context` is around forward passes and losses; `backward` and `update` take
    the place of the calls for a backward pass and for an optimizer step.
    """
    places = {
        "at the start of each epoch": "loader.sampler.set_epoch(epoch)" * data.is_sampled,
        "for each batch": "; ".join(batch),
        "around forward passes and losses": context,
        "as the backward pass of a loss": backward,
        "as the step of an optimizer": update,
        "accumulation": accumulation,
    }
    said = (f"# {place}: {line}" for place, line in places.items() if line)
    return (f"# {data.own_training} and the loop around it stay as they are", *said)


def stays(data: ExportedData) -> str:
    """Return a comment for a framework that calls the user's `training_step`; empty for other targets."""
    return f"# {TRAINING_STEP} stays as it is" * (data.own_training == TRAINING_STEP)
