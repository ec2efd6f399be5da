"""One profile: inspect the named target, choose its configuration, and run the child process."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from autotune.core.records import Config, Record, Value
from autotune.core.results import Failure, Outcome, Result
from autotune.errors import AutotuneError, UsageError
from autotune.launch.base import LOG, Launcher
from autotune.launch.files import log_tail
from autotune.machine.host import host_memory
from autotune.preparation.named_training import Name, NamedTraining, named_training, settle_training
from autotune.preparation.prepare import inspect
from autotune.preparation.settings import Settings
from autotune.profile.failed import error_of_profile, with_shown_trace
from autotune.profile.memory_run import OutOfMemory, on_shapes, smaller_batch, with_shapes, with_sites
from autotune.profile.records import ProfileRequest, ProfileResult
from autotune.profile.storage_run import with_storage
from autotune.study.disk import is_study
from autotune.targets import resolve
from autotune.targets.commands.command import Command, is_command

PROFILE_SEED = 0
LOG_BYTES = 2**16  # of the end of a log, of which an error shows a few lines


class Profile(Record, frozen=True, kw_only=True):
    """One finished profile: the target, its configuration, the machine and the result."""

    label: str
    machine: str  # the device's name
    memory_limit_bytes: int
    asked: ProfileRequest
    result: ProfileResult

    @property
    def config(self) -> Config:
        """The profiled configuration."""
        return self.asked.config

    @property
    def device(self) -> str:
        """The device by torch's name, such as `cuda:0`."""
        return self.asked.device


def named_target(name: Name, *, best: bool, changed: Mapping[str, Value], ranks: int | None = None) -> NamedTraining:
    """Return the target that `name` names (a study: with its recommendation), with settings.

    `best`: with the settings that the target's study recommends. `ranks`: number of ranks; None: that of the study,
    else one. Raises `TargetError`, `UsageError` and `StudyError`.
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
    return named.with_changed_values(changed) if changed else named


def profile(
    named: NamedTraining, device: str | None, launcher: Launcher, output: Path | None = None, *, verify: bool = False
) -> Profile:
    """Look at the target, profile its configuration, and run it on shapes: only traces and a log in `output` stay.

    Raises `TargetError`, `UsageError` and `EnvironmentUnfit`.
    """
    with tempfile.TemporaryDirectory(prefix="autotune-") as place:
        looked_in = Path(place) / "inspect"
        found = inspect(
            named.target, device, PROFILE_SEED, looked_in, launcher, ranks=named.ranks,
            error_of=lambda ended: _error(
                named, ended, looked_in, None, output, launcher, again=_as_written(named.target, device, ended.outcome)
            ),
        )  # fmt: skip
        request = settle_training(named, named.target, "", PROFILE_SEED, found, launcher).request
        if verify and request.facts.owns_loop:
            raise UsageError(
                f"--verify takes the same steps again without what was found. {named.label} trains in a loop of its "
                f"own, whose steps nobody else can repeat. Leave --verify out, or profile its model as a file of "
                f"functions."
            )
        asked = ProfileRequest(
            target=named.target,
            config=request.baseline,
            device=request.environment.device,
            seed=PROFILE_SEED,
            memory_limit_bytes=request.enforced_limit_bytes,
            settable=request.facts.settable,
            output=None if output is None else str(output.resolve()),
            verify=verify,
            ranks=named.ranks,
        )
        folder = Path(place) / asked.FOLDER
        folder.mkdir()
        result = launcher.run(asked, folder)
        # Otherwise a shape run or a reading of the data is impossible, or describes only one process.
        has_parts = not request.facts.owns_loop and named.ranks == 1
        if result.failure is not None and not (has_parts and result.outcome.out_of_memory):
            raise _error(named, result, folder, asked, output, launcher, again=asked)
        _keep_log(folder, output)
        if has_parts:
            if result.failure is not None:
                result = structs.replace(result, failure=_shown(result, folder))
            result = with_shapes(result, asked, on_shapes(asked, request.domains, launcher, Path(place)))
            result = with_storage(result, asked, launcher, Path(place))
    return Profile(
        label=named.label, machine=request.environment.device_name,
        memory_limit_bytes=request.memory_limit_bytes, asked=asked, result=result,
    )  # fmt: skip


def _error(
    named: NamedTraining, ended: Result, folder: Path, asked: ProfileRequest | None, output: Path | None,
    launcher: Launcher, *, again: ProfileRequest | None,
) -> AutotuneError:  # fmt: skip
    """Return the error for what `ended`; if memory ran out, `again` is done once more, to see what took it."""
    is_memory, smaller = ended.outcome.out_of_memory, _smaller_batch(named.target, asked)
    if is_memory and again is not None:
        kept = structs.replace(again, output=None if output is None else str(output.resolve()))
        ended = with_sites(ended, kept, launcher, folder.parent)
    error = error_of_profile(named.label, ended, _log(folder), smaller, _keep_log(folder, output))
    if not is_memory:
        return error
    return OutOfMemory(str(error), result=ProfileResult(outcome=ended.outcome, failure=_shown(ended, folder)))


def _as_written(target: str, device: str | None, outcome: Outcome) -> ProfileRequest | None:
    """Return the request for a command as it is written, which is not known yet; None: no command, so `on_shapes`."""
    if not is_command(target):
        return None
    on_host = outcome is not Outcome.OOM_DEVICE
    return ProfileRequest(
        target=target,
        config=Config(values=Command.parse(target).baseline),
        device=device or ("cpu" if on_host else "cuda"),
        seed=PROFILE_SEED,
        memory_limit_bytes=host_memory().available_bytes if on_host and sys.platform == "linux" else None,
        settable=(),
    )


def _shown(ended: Result, folder: Path) -> Failure:
    assert ended.failure is not None, "only what failed is shown"
    return with_shown_trace(ended.failure, _log(folder))


def _log(folder: Path) -> str:
    return log_tail(folder, LOG_BYTES) if (folder / LOG).exists() else ""


def _keep_log(folder: Path, output: Path | None) -> Path | None:
    """Copy the log into `output`; return its path; None: it is not kept."""
    if output is None or not (folder / LOG).exists():
        return None
    return Path(shutil.copyfile(folder / LOG, output / LOG))


def _smaller_batch(target: str, asked: ProfileRequest | None) -> str:
    """Return how to ask for a smaller batch; without `asked` the configuration is unknown."""
    if asked is not None and (asked.settable is None or "batch_size" in asked.settable):
        return smaller_batch(asked)
    return "a smaller batch in what it is given" if is_command(target) else "a smaller batch by --config"
