"""Compares what the ranks of a command saw when it was inspected: equal parameters, equally long epochs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotune.core.records import Finding, RankFacts, SteppedParameter
from autotune.errors import TargetError
from autotune.sentences import first_few

MOST_DRIFTING_NAMED = 3  # parameters that the message names


def check_parameters(ranks: Sequence[RankFacts]) -> None:
    """Raise `TargetError` with the parameters of which ranks have different values after an optimizer step.

    Nothing is compared if ranks stepped different parameters; a parameter only if it got a gradient on all ranks.
    """
    rows = list(zip(*(one.stepped for one in ranks), strict=False))
    if len({len(one.stepped) for one in ranks}) > 1 or any(_is_another(*row) for row in rows):
        return
    if differing := [row for row in rows if None not in (sums := [one.checksum for one in row]) and len(set(sums)) > 1]:
        unwrapped = [row for row in differing if not row[0].is_wrapped]
        raise _disagreement(unwrapped or differing, is_wrapped=not unwrapped)


def uneven_epochs(ranks: Sequence[RankFacts]) -> Iterator[Finding]:
    """Yield the finding that ranks of `DistributedDataParallel` have epochs of different length."""
    counts = [one.epoch_batches if one.stepped else 0 for one in ranks]
    if all(counts) and len(set(counts)) > 1:
        text = (
            f"the ranks have {' and '.join(f'{count:,}' for count in counts)} batches in an epoch: at its end those "
            f"that have more wait for ever. Give each as many, as DistributedSampler does, or train under "
            f"torch.distributed.algorithms.join.Join"
        )
        yield Finding(name="ranks", text=text, needs_attention=True)


def _is_another(first: SteppedParameter, *others: SteppedParameter) -> bool:
    return any((one.name, one.shape) != (first.name, first.shape) for one in others)


def _disagreement(rows: Sequence[Sequence[SteppedParameter]], *, is_wrapped: bool) -> TargetError:
    others = [number for number in range(len(rows[0])) if any(row[number].checksum != row[0].checksum for row in rows)]
    names = first_few([row[0].name for row in rows], MOST_DRIFTING_NAMED)
    seen = (
        f"after one optimizer step rank {' and '.join(map(str, others))} {'has' if len(others) == 1 else 'have'} other "
        f"values of {names} than rank 0: the ranks drift apart."
    )
    if is_wrapped:
        return TargetError(
            f"{seen} They are inside DistributedDataParallel, and probably their gradients were not averaged: by a "
            f"call of model.module, a step inside no_sync(), or numbers that each rank draws. Call the wrapped model, "
            f"leave no_sync() before the last forward pass of a step, and seed all ranks alike."
        )
    return TargetError(
        f"{seen} The optimizer trains them, but they are probably outside every DistributedDataParallel, so that their "
        f"gradients are not averaged. Make their module a part of the one that DistributedDataParallel wraps; if each "
        f"rank is meant to have its own, name them in _ddp_params_and_buffers_to_ignore of their module."
    )
