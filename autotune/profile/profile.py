"""One profile, from what the user names to its result: look at the target, settle its configuration, run the child."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from autotune.core.records import Config, Record, Value
from autotune.core.results import Outcome
from autotune.errors import TargetError, UsageError
from autotune.launch.base import Launcher
from autotune.preparation.named_training import Name, NamedTraining, named_training, settle_training
from autotune.preparation.prepare import error_of_failure, inspect
from autotune.preparation.settings import Settings
from autotune.profile.memory_stage import on_shapes, smaller_batch, with_shapes
from autotune.profile.records import ProfileRequest, ProfileResult
from autotune.profile.storage_stage import with_storage
from autotune.study.disk import is_study
from autotune.targets import resolve

SEED = 0


class Profile(Record, frozen=True, kw_only=True):
    """What was profiled, and what came out."""

    label: str
    machine: str  # the device's name
    memory_limit_bytes: int
    asked: ProfileRequest
    result: ProfileResult

    @property
    def config(self) -> Config:
        """The configuration."""
        return self.asked.config

    @property
    def device(self) -> str:
        """The device, as torch names it."""
        return self.asked.device


def named_target(name: Name, *, best: bool, changed: Mapping[str, Value], ranks: int | None = None) -> NamedTraining:
    """Return the target that `name` names (a study: with its recommendation), with settings.

    `best`: those that the study of this target recommends; `ranks`: as many train, None: as in the study, else one.
    Raises `TargetError`, `UsageError` and `StudyError`.
    """
    named = named_training(name)
    if ranks is not None:
        named = replace(named, ranks=ranks)
    if best and not named.values:
        study = Settings.of(target=named.target).folder
        if not is_study(study):
            raise UsageError(
                f"There is no study {study}, where a search of {named.label} leaves its recommendation. It probably "
                f"lies elsewhere, or was never run. Name the study: autotune profile STUDY; or leave --best out."
            )
        found = named_training(str(study))
        if resolve(found.target) != resolve(named.target):
            raise UsageError(
                f"{study} is a study of {found.target}, not of {named.label}. --best looks for the study that a search "
                f"of the target would write. Name the study itself: autotune profile STUDY."
            )
        named = replace(named, values=found.values, ranks=ranks or found.ranks)
    return named.with_settings(changed) if changed else named


def profile(
    named: NamedTraining, device: str | None, launcher: Launcher, output: Path | None = None, *, verify: bool = False
) -> Profile:
    """Look at the target, profile its configuration, and run it on shapes: only traces in `output` stay.

    Raises `TargetError`, `UsageError` and `EnvironmentUnfit`.
    """
    with tempfile.TemporaryDirectory(prefix="autotune-") as place:
        looked_in = Path(place) / "inspect"
        found = inspect(named.target, device, SEED, looked_in, launcher, keeps_log=False, ranks=named.ranks)[:2]
        request = settle_training(named, named.target, "", SEED, found, launcher).request
        asked = ProfileRequest(
            target=named.target,
            config=request.baseline,
            device=request.environment.device,
            seed=SEED,
            memory_limit_bytes=request.enforced_limit_bytes,
            settable=request.facts.settable,
            output=None if output is None else str(output.resolve()),
            verify=verify,
            ranks=named.ranks,
        )
        folder = Path(place) / asked.FOLDER
        folder.mkdir()
        result = launcher.run(asked, folder)
        # Else a run on shapes or a reading of its data is not possible, or tells of one process alone.
        has_parts = not request.facts.owns_loop and named.ranks == 1
        if has_parts and (result.failure is None or result.outcome.out_of_memory):
            result = with_shapes(result, asked, on_shapes(asked, request.domains, launcher, Path(place)))
            result = with_storage(result, asked, launcher, Path(place))
    if result.failure is None:
        return Profile(
            label=named.label, machine=request.environment.device_name,
            memory_limit_bytes=request.memory_limit_bytes, asked=asked, result=result,
        )  # fmt: skip
    if result.outcome in (Outcome.USER_ERROR, Outcome.INVALID_CONFIG, Outcome.ENVIRONMENT):
        raise error_of_failure(result.outcome, result.failure, None)
    raise TargetError(
        f"Profiling ended with {result.outcome.value} in phase {result.failure.phase}: {result.failure.message} "
        f"({result.failure.evidence}). Looking at steps takes a little more memory and time than training. "
        f"{smaller_batch(asked)}",
        traceback=result.failure.traceback,
    )
