"""Measures the efficiency curve: a race whose contestants are one training with different numbers of ranks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from autotune.core.records import StudyRequest, Value
from autotune.errors import UsageError
from autotune.launch.base import Launcher
from autotune.preparation.named_training import Name, NamedTraining, inspect_training, named_training, settle_training
from autotune.races.race import race
from autotune.races.settings import RaceSettings
from autotune.scaling.efficiency import ScaleResult, points_of, shared
from autotune.targets.commands.command import is_command


def scale(
    name: Name, counts: Sequence[int], changed: Mapping[str, Value], settings: RaceSettings, launcher: Launcher,
    tell: Callable[[str], None],
) -> ScaleResult:  # fmt: skip
    """Return the efficiency of each number of ranks in `counts`, ascending, for a file or a study with `changed`.

    Raises what `race` raises, and `UsageError` for a target that starts its own ranks, or for a global batch that they
    cannot share.
    """
    named = named_training(name)
    if is_command(named.target):
        raise UsageError(
            f"{named.label} is a command, and only its own launcher starts its ranks. `autotune scale` changes the "
            f"number of a file of functions. Race the command against itself: "
            f'autotune race "torchrun --nproc-per-node 1 ..." "torchrun --nproc-per-node 2 ...".'
        )
    named = named.with_changed_values(changed) if changed else named
    request = _looked_at(named, settings, launcher)
    whole, own = request.global_batch_size(request.baseline), request.baseline.batch_size
    contestants = [_with_ranks(named, count, *shared(whole, own, count)) for count in counts]
    result = race(contestants, settings, lambda _: launcher, tell)
    return ScaleResult(
        target=named.label,
        global_batch_size=whole,
        has_batch_norm=request.facts.has_batch_norm,
        has_data_parallel=request.facts.has_data_parallel,
        points=points_of(result, counts),
        environment=result.environment,
        folder=result.folder,
        seconds=result.seconds,
        probes=result.probes,
        with_interference=result.with_interference,
    )


def _looked_at(named: NamedTraining, settings: RaceSettings, launcher: Launcher) -> StudyRequest:
    """Take one step; return the request with the global batch to hold. Raises `UsageError` for a target's own loop."""
    with tempfile.TemporaryDirectory(prefix="autotune-") as place:
        found = inspect_training(named, named.target, settings.device, settings.seed, Path(place), launcher)
    if found[1].owns_loop:
        raise UsageError(
            f"{named.label} trains in a loop of its own, which starts its ranks itself. Ours cannot change their "
            f"number. Race commands instead, with torchrun before them."
        )
    return settle_training(named, named.target, "", settings.seed, found, launcher).request


def _with_ranks(named: NamedTraining, count: int, batch_size: int, accumulation: int) -> NamedTraining:
    own = {"batch_size": batch_size, "gradient_accumulation_steps": accumulation}
    label = f"{count} rank{'s' * (count > 1)}"
    return replace(named, label=label, ranks=count, changed={**named.changed, **own})
