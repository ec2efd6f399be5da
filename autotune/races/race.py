"""A race from what the user names to its result: inspect the contestants, run the rounds, record, judge."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from autotune.answer.ranking import compared
from autotune.context.time_shares import TimeShares
from autotune.core.records import Config, Environment, TargetFacts, Value
from autotune.core.requests import InspectRequest
from autotune.errors import EnvironmentUnfit, StudyError, UsageError
from autotune.knobs.declared import declare
from autotune.launch.base import Launcher
from autotune.launch.files import store
from autotune.objectives.verdict import instability
from autotune.preparation.named_training import (
    Name,
    NamedTraining,
    SettledTraining,
    inspect_training,
    named_training,
    settle_training,
)
from autotune.preparation.settings import Settings
from autotune.races.race_run import RaceRun
from autotune.races.records import RaceResult, RaceVerdict, Standing, StopReason, verdict_on
from autotune.races.settings import RaceSettings
from autotune.races.worktree import Worktree, worktree
from autotune.study import disk
from autotune.units import counted

GITIGNORE = f"*\n!.gitignore\n!{disk.RACE}\n"
WORKTREE = "worktree"  # in the folder of the race
LauncherFor = Callable[[Worktree | None], Launcher]  # the code of a revision; None: the working tree


def named_contestants(
    names: Sequence[Name], configs: Sequence[Mapping[str, Value]], baseline_commit: str | None
) -> list[NamedTraining]:
    """Return the contestants in their order, the baseline first. Raises `UsageError` if there are fewer than two."""
    found = [named_training(name) for name in names]
    first = found[:1]
    found = [*(one.at(baseline_commit) for one in first if baseline_commit), *found]
    if not all(configs):
        raise UsageError(
            "--config names no setting, so that contestant would be the first one again. A value was probably left "
            "out. Write knob=value, such as --config batch=64,amp=bf16; to race a code against itself, name it twice."
        )
    found += [one.with_changed_values(config) for one in first for config in configs]
    if len(found) < 2:
        raise UsageError(
            "A race needs two contestants. The second was probably left out. Name another, give --config "
            "batch=64 for other settings of the same, or --baseline-commit main for its code there."
        )
    return _told_apart(found)


def _told_apart(named: list[NamedTraining]) -> list[NamedTraining]:
    """Return them with a number after a label that was used before: racing a code against itself shows the noise."""
    told, found = Counter[str](), []
    for one in named:
        told[one.label] += 1
        again = f" ({told[one.label]})" * (told[one.label] > 1)
        found.append(replace(one, label=f"{one.label}{again}"))
    return found


def race(
    named: Sequence[NamedTraining], settings: RaceSettings, launcher_for: LauncherFor, tell: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = time.sleep, *,
    known_seconds: Callable[[Config], float] | None = None,
) -> RaceResult:  # fmt: skip
    """Run one race, store its result as race.json in its folder, and return it. `tell` is given sentences for people.

    `known_seconds` returns those of a probe of a configuration, as measured before.

    Raises `RaceFailed`, `UsageError`, `StudyError` or `EnvironmentUnfit`. On `KeyboardInterrupt` the running probe is
    killed, finished probes are kept, and the interrupt is raised again.
    """
    began = clock()
    with _new_folder(settings.folder, named[0].target) as folder, ExitStack() as open_ends:
        checkout = None
        if settings.baseline_commit is not None:
            tell(f"Checking out {settings.baseline_commit}.")
            checkout = open_ends.enter_context(worktree(settings.baseline_commit, folder / WORKTREE))
        tell("Taking one step of each contestant, to see that it trains.")
        contestants = _contestants(named, settings, launcher_for, checkout, folder, tell)
        tell(f"Racing {counted(len(contestants), 'contestant')} in {folder}, {named[0].label} as the baseline.")
        run = RaceRun(
            contestants, folder, tolerance=settings.tolerance, pause=pause, tell=tell,
            time=TimeShares(settings.time_budget_seconds, clock, began), stops_early=settings.stops_early,
            may_leave=settings.may_leave, known_seconds=known_seconds,
        )  # fmt: skip
        ended = run.run_rounds(settings.rounds)
        result = _result(run, settings, ended, clock() - began)
        if result.standings:
            store(folder, disk.RACE, result)
    return result


def _contestants(
    named: Sequence[NamedTraining], settings: RaceSettings, launcher_for: LauncherFor, checkout: Worktree | None,
    folder: Path, tell: Callable[[str], None],
) -> list[SettledTraining]:  # fmt: skip
    """Inspect each code once, for all settings with which it races; return the contestants."""
    found, looked = [], dict[tuple[str, str, int], tuple[Environment, TargetFacts, float]]()
    for one in named:
        tree = checkout if one.revision else None
        target, commit = (tree.target(one.target), tree.commit) if tree else (one.target, "")
        launcher = launcher_for(tree)
        code = (target, commit, one.ranks)
        if code not in looked:
            _, place = disk.new_attempt(folder, InspectRequest)
            looked[code] = inspect_training(one, target, settings.device, settings.seed, place, launcher)
        try:
            found.append(settle_training(one, target, commit, settings.seed, looked[code], launcher))
        except UsageError as error:
            if not (settings.may_leave and found):
                raise
            tell(f"{one.label} is left out. {error}")
    declare(*(declared for one in found for declared in one.request.facts.declared))  # of all of them, from here on
    return found


def _standings(run: RaceRun, tolerance: float) -> Iterator[Standing]:
    """Yield the standings of those that have not left."""
    summaries, rates, _ = compared(run.summaries, 0)
    contestants = [run.contestants[at] for at in run.running]
    for at, (one, summary) in enumerate(zip(contestants, summaries, strict=True)):
        ratio, low, high = rates.ratio(at, 0, run.confidence()) if at else (None, None, None)
        is_beside_others = at > 0 and run.is_beside_others(at)
        verdict: RaceVerdict | None = "undecided" if is_beside_others else None
        if not is_beside_others and ratio is not None and low is not None and high is not None:
            verdict = verdict_on(ratio, low, high, tolerance)
        yield Standing(
            label=one.label,
            target=one.request.target,
            commit=one.commit,
            target_digest=one.request.target_digest,
            model=one.request.facts.name,
            parameter_count=one.request.facts.parameter_count,
            config=summary.config,
            global_batch_size=one.request.global_batch_size(summary.config),
            samples_per_second=summary.samples_per_second,
            relative_half_width=summary.relative_half_width,
            rounds=tuple(summary.by_round(summary.rates)),
            trials=tuple(trial.number for trial in summary.trials),
            ratio=ratio,
            ratio_low=low,
            ratio_high=high,
            verdict=verdict,
            beside_others=is_beside_others,
            unstable=next(filter(None, map(instability, summary.measurements)), None),
        )


def _result(run: RaceRun, settings: RaceSettings, ended: StopReason, seconds: float) -> RaceResult:
    standings = _standings(run, settings.tolerance) if len(run.running) > 1 else ()
    return RaceResult(
        folder=str(run.folder),
        standings=tuple(standings),
        tolerance=settings.tolerance,
        ended=ended,
        probes=len(run.trials),
        with_interference=run.with_interference,
        seconds=seconds,
        environment=run.contestants[0].request.environment,
        declared=tuple(declared for one in run.contestants for declared in one.request.facts.declared),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


@contextmanager
def _new_folder(asked: Path | None, target: str) -> Iterator[Path]:
    """Make the folder of the race; remove it again if it recorded no probe. Raises `StudyError`."""
    folder, is_new = _make_folder(asked, target)
    try:
        (folder / ".gitignore").write_text(GITIGNORE)
        yield folder
    except (KeyboardInterrupt, UsageError, EnvironmentUnfit):  # but not after `RaceFailed`, which names its log
        if not (folder / disk.PROBES).exists():
            for place in [folder] if is_new else list(folder.iterdir()):
                shutil.rmtree(place, ignore_errors=True)
            if not is_new:
                (folder / ".gitignore").unlink(missing_ok=True)
            if folder.parent == disk.STUDIES:
                with suppress(OSError):
                    disk.STUDIES.rmdir()
        raise
    finally:
        disk.take_compiled_away(folder)


def _make_folder(asked: Path | None, target: str) -> tuple[Path, bool]:
    """Return the folder of the race, and whether it was made: an empty one of the user's may be there already."""
    usual = Settings.of(target=target).folder
    number = 1
    while True:
        again = f"-{number}" if number > 1 else ""
        folder = asked or usual.with_name(f"race-{usual.name}{again}")
        disk.make(folder.parent)
        try:
            folder.mkdir()
        except FileExistsError:
            if asked is not None and any(asked.iterdir() if asked.is_dir() else [asked]):
                raise StudyError(
                    f"{asked} is there already, and a race has a new folder. It probably holds another race or a "
                    f"study. Choose another with --folder, or leave it out."
                ) from None
        except OSError as error:
            raise disk.unwritable(folder, error) from error
        else:
            return folder, True
        if asked is not None:
            return folder, False
        number += 1
