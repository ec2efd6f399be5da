"""The launcher of a search: this machine, or the workers that meet the search in a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from autotune.errors import AutotuneError, UsageError
from autotune.fleet.on_ray import RayCluster, check_cluster
from autotune.fleet.records import QueuedStudy, RayOrder
from autotune.launch.base import Launcher
from autotune.launch.subprocess import SubprocessLauncher
from autotune.preparation.fleet_settings import FleetSettings
from autotune.preparation.ranks import asked_ranks, is_number, rank_environ
from autotune.preparation.settings import Settings
from autotune.study import disk
from autotune.targets.source import digest_of


@contextmanager
def launching(
    settings: Settings, fleet: FleetSettings | None, note: Callable[[str], None],
    around: Callable[[Launcher], Launcher] = lambda launcher: launcher,
) -> Iterator[Launcher]:  # fmt: skip
    """Yield the launcher of a search: of the workers of a `fleet`, or of this machine.

    `note` gets what a person should know about the workers. `around` may wrap the launcher of this machine. Raises
    `UsageError`, `StudyError` or `EnvironmentUnfit`.
    """
    patience, isolation = settings.step_timeout_seconds, settings.isolation
    if fleet is None:
        environ = rank_environ(settings)
        with SubprocessLauncher(step_timeout_seconds=patience, isolation=isolation, environ=environ) as local:
            yield around(local)
        return
    if settings.devices is not None and not is_number(settings.devices):
        raise UsageError(
            f"--devices {settings.devices} chooses GPUs of this machine, and with --storage others train, which may "
            f"have more or fewer. Write how many each worker trains with, --devices 4: the first of those that "
            f"CUDA_VISIBLE_DEVICES shows there."
        )
    if fleet.on is not None:
        check_cluster(fleet.on, settings.device)
    from autotune.fleet.launcher import FleetLauncher

    folder, is_fresh = settings.folder, settings.mode == "fresh"
    begun = disk.read_request(folder) if not is_fresh and (folder / disk.STUDY).is_file() else None
    study = QueuedStudy(
        name=folder.absolute().name, target=settings.target, target_digest=digest_of(settings.target),
        isolation=isolation, ranks=asked_ranks(settings).count, environment=begun.environment if begun else None,
    )  # fmt: skip
    launcher = FleetLauncher(
        fleet.storage,
        study,
        folder,
        is_fresh=is_fresh,
        expected=fleet.workers_expected,
        step_timeout_seconds=patience,
        tell=note,
    )
    has_ended, cluster = False, None
    try:
        if fleet.on is not None:  # the study is locked: these are no workers of another search
            launcher.starter = cluster = RayCluster(_order(fleet, fleet.on, study, settings), note)
            launcher.expected = cluster.workers
        yield launcher
        has_ended = True
    finally:
        with ExitStack() as ends:  # both end, even if Ctrl-C is pressed again
            if cluster is not None:
                ends.callback(cluster.close, has_ended=has_ended)
            with suppress(AutotuneError):  # the answer, or the first error, is the one to show
                launcher.close(has_ended=has_ended)


def _order(fleet: FleetSettings, address: str, study: QueuedStudy, settings: Settings) -> RayOrder:
    return RayOrder(
        address=address, workers=fleet.workers_expected, storage=fleet.storage, study=study.name, target=study.target,
        device=asked_ranks(settings).device, gpus=study.ranks if settings.devices else 1, folder=str(Path.cwd()),
    )  # fmt: skip
