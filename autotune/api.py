"""`autotune.search` and `autotune.race` for Python: the same engine and the same errors as the command line."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

from autotune.context.reporter import Reporter, SilentReporter
from autotune.core.option import Option, described
from autotune.core.probe_tag import TAG
from autotune.core.records import Stability, Value
from autotune.core.results import Isolation
from autotune.errors import UsageError
from autotune.knobs import OURS
from autotune.knobs.declared import declaration
from autotune.knobs.parsing import asked_name, full_name, limit
from autotune.launch.subprocess import SubprocessLauncher
from autotune.objectives import ObjectiveName
from autotune.preparation.fleet_settings import FleetSettings
from autotune.preparation.launching import launching
from autotune.preparation.named_training import Name, may_declare
from autotune.preparation.settings import KnobNames, KnobValues, Mode, Settings, options
from autotune.races.race import named_contestants
from autotune.races.race import race as run_race
from autotune.races.records import RaceResult
from autotune.races.settings import RaceSettings
from autotune.races.worktree import Worktree
from autotune.sampler.names import SamplerName
from autotune.study.recommendation import Recommendation
from autotune.targets import resolve, source
from autotune.targets.commands.recognition.typed_target import TypedTarget, typed_target
from autotune.tuning.engine import search as run


def search(
    target: str | PathLike[str] | Sequence[str] | Callable[..., Any],
    *,
    map: Mapping[str, str] | None = None,
    time_budget: str | float = "10m",
    probes: int | None = None,
    study: str | PathLike[str] | None = None,
    mode: Mode = "auto",
    device: str | None = None,
    devices: str | None = None,
    ranks: int | None = None,
    objective: ObjectiveName = "throughput",
    exact: bool = False,
    global_batch: int | Literal["keep", "free"] | None = None,
    memory_limit: str | None = None,
    headroom: str | float | None = None,
    baseline: Mapping[str, Value] | None = None,
    space: Mapping[str, Sequence[Value] | Mapping[str, Any] | Value] | None = None,
    tune: Sequence[str] | None = None,
    run_length: str | None = None,
    sampler: SamplerName = "structured",
    stability: Stability = "quick",
    profile: Literal["quick", "off"] = "quick",
    loss_tolerance: str | float | None = None,
    step_timeout: str | float | None = None,
    isolation: Isolation = "fork",
    seed: int = 0,
    storage: str | None = None,
    workers_expected: int = 1,
    on: str | None = None,
    reporter: Reporter | None = None,
    **objective_options: Any,
) -> Recommendation:
    """Search the best training configuration for `target` on this machine: the fastest, unless `objective` differs.

    `target` is a file, a module, or module:attribute, as for `autotune search`. It may be a function of a module that
    returns `(model, dataset)` or a dict of the agreed names; probes import it by its name. Or it is the words of a
    command: `["python", "train.py", "--batch-size", "64"]`, whose arguments are recognised by name; `map` corrects
    that, by knob name.

    `time_budget` is in seconds, or a text with its unit like `10m`. `devices` are the GPUs that one process each trains
    on, `all`, `4` or `0,2`; `ranks` is a number of processes on the CPU. With `exact`, only knobs change that keep what
    is computed, up to the order of rounding. `headroom` is a share of the memory limit, in [0, 1); `loss_tolerance` is
    a share of the full-precision loss decrease, in [0, 1). `run_length` is that of the planned training, `12h` or
    `30epochs`: compiling counts as a share of it. `step_timeout` is how long a micro-batch may take before it counts
    as hung, in seconds or as a text. With `isolation` "fork" probes start from a process that has torch imported, where
    that is safe; with "fresh" none does.

    Options of an objective, like `within` of "memory" and `price` of "cost", are those of `autotune search --help`. A
    share or a price may also be a text, as on the command line: `5%`. `space` says which values a knob may take, by
    knob name, as `space` in a target does: a tuple of two whole numbers is a range, a list has the values, one value
    holds the knob; any other name declares a knob of your own (docs/knobs.md). With `storage`, the address of a
    PostgreSQL database, the workers that are connected to it measure (docs/scaling.md); the search begins with
    `workers_expected` of them, and `on` is the address of a Ray cluster that starts them.

    Nothing is printed; pass a `reporter` to follow the search, such as a `SilentReporter` with methods of yours. Raises
    `UsageError`, `TargetError`, `StudyError`, `EnvironmentUnfit` or `NoRecommendation`.
    """
    asked = {**locals(), **objective_options}
    _check_outside("search")
    for name in objective_options.keys() - {one.name for one in options()}:
        raise TypeError(f"search() got an unexpected keyword argument {name!r}")
    typed, follower = _typed(target, map or {}), reporter or SilentReporter()
    settings, fleet = _settings(typed, asked)
    for remark in typed.remarks:
        follower.note(f"{remark}.")
    resolve(settings.target)  # a missing file is reported before a folder is made for its study
    with launching(settings, fleet, follower.note) as launcher:
        return run(settings, launcher, follower)


def race(
    *contestants: Name,
    configs: Sequence[Mapping[str, Value]] = (),
    baseline_commit: str | None = None,
    tolerance: str | float = "2%",
    time_budget: str | float = "5m",
    rounds: int | None = None,
    device: str | None = None,
    folder: str | PathLike[str] | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> RaceResult:
    """Race contestants against the first of them, and return which one trains faster.

    A contestant is a file, a module or module:attribute; a command, as one text or as a list of words; or a study,
    which runs with its recommended settings. Each of `configs`, settings by knob name, adds one contestant: the first
    one with these settings. With `baseline_commit` the first contestant's code of that git revision is the baseline.

    All train in turn, in processes of their own, until each is known to be faster than the baseline, as fast, or
    slower, until `time_budget` is used up (seconds, or a text like `10m`), or for `rounds` rounds, if given.
    A contestant that is slower by at most `tolerance`, a share in (0, 1), counts as equally fast. `folder` is that of
    the race, by default a new one. `tell` is called with sentences on what happens. Raises `RaceFailed` if a contestant
    does not train, `UsageError`, `TargetError`, `StudyError` or `EnvironmentUnfit`.
    """
    asked = locals()
    _check_outside("race")
    settings = RaceSettings(**{one.field: _read(one, asked[one.name]) for one in described(RaceSettings)})
    changed = [_by_full_name(config, contestants) for config in configs]
    named = named_contestants(contestants, changed, baseline_commit)
    return copy_context().run(run_race, named, settings, _launcher, tell)  # knobs that they declare are theirs


def _launcher(checkout: Worktree | None) -> SubprocessLauncher:
    if checkout is None:
        return SubprocessLauncher()
    return SubprocessLauncher(cwd=checkout.folder, environ=checkout.environ)


def _by_full_name(config: Mapping[str, Value], contestants: Sequence[Name]) -> dict[str, Value]:
    try:
        return {
            asked_name(name, lambda one: any(may_declare(first, one) for first in contestants[:1])): value
            for name, value in config.items()
        }
    except ValueError as error:
        raise UsageError(f"configs: {error}") from error


def _read(option: Option, given: Any) -> Any:
    try:
        return _value(option, given)
    except ValueError as error:
        said = f"{option.name}: {error}".replace(f"{option.name}: {option.name} must", f"{option.name} must", 1)
        raise UsageError(f"{said}. It was probably mistyped. Correct it, or leave it out.") from error


def _check_outside(name: str) -> None:
    """Raise `UsageError` if this process is a probe: a target must not start a search."""
    if TAG in os.environ:
        raise UsageError(
            f"autotune.{name}() was called in a probe, which would begin another {name}. The file of the target "
            f"probably calls it when it is imported. Put the call behind if __name__ == '__main__'."
        )


def _settings(typed: TypedTarget, asked: Mapping[str, Any]) -> tuple[Settings, FleetSettings | None]:
    """Return the arguments of `search`, by name, as settings. Raises `UsageError` for a value without a meaning."""
    space, ours = asked["space"] or {}, {known for knob in OURS for known in (knob.name, knob.alias)}
    may = partial(source.may_declare, typed.text)
    try:
        settings = Settings.of(
            target=typed.text,
            mode=asked["mode"],
            limits={full_name(name): limit(full_name(name), space[name]) for name in space if name in ours},
            declared=tuple(declaration(asked_name(name, may), space[name]) for name in space if name not in ours),
            **{one.field: _value(one, asked.get(one.name), may) for one in options()},
        )
        of_fleet = {one.field: asked[one.name] for one in described(FleetSettings) if asked[one.name] != one.default}
        return settings, FleetSettings.of(**of_fleet)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"{error}{'' if str(error).endswith(('.', '?')) else '.'} The argument was probably meant otherwise. See "
            f"help(autotune.search) for what each one takes."
        ) from error


def _typed(target: object, corrections: Mapping[str, str]) -> TypedTarget:
    """Return the target as a text. Raises `UsageError` for what is neither a text nor a list of texts."""
    if callable(target):
        target = _place(target)
    if isinstance(target, Sequence) and not isinstance(target, str):
        return typed_target([str(word) for word in target], corrections, is_typed_command=True)
    try:
        return typed_target([fspath(target)], corrections, is_typed_command=False)  # type: ignore[call-overload]  # asked
    except TypeError as error:
        raise UsageError(
            f"{error}. A target is a file, a module, or a list of words that is a command: probes are processes of "
            f'their own. Name the file, or give ["python", "train.py"].'
        ) from error


def _place(function: Callable[..., Any]) -> str:
    """Return the place of a function, as probes find it. Raises `UsageError` for one that no import finds."""
    name, module = getattr(function, "__qualname__", ""), sys.modules.get(getattr(function, "__module__", ""))
    file = getattr(module, "__file__", None)
    if file is None or getattr(module, name, None) is not function:
        raise UsageError(
            f"{function!r} cannot be imported by its name, and probes are processes of their own. It is probably a "
            f"lambda, made inside another function, or typed into a notebook. Write a function at the top of a module."
        )
    is_in_package = module is not None and module.__name__ != "__main__" and bool(module.__package__)
    return f"{function.__module__ if is_in_package else file}:{name}"


def _value(option: Option, given: Any, may_declare: Callable[[str], bool] = lambda name: False) -> Any:
    """Return the value given for an option, as settings have it. Raises `ValueError` for a text without a meaning."""
    if KnobValues in option.parts:
        return {asked_name(name, may_declare): value for name, value in (given or {}).items()}
    if KnobNames in option.parts and given is not None:
        names = given.split(",") if isinstance(given, str) else given
        return tuple(asked_name(name.strip(), may_declare) for name in names)
    if Path in option.parts and given is not None:
        return Path(given)
    return option.parse(given) if option.read is not None and isinstance(given, str) else given


def _signature() -> inspect.Signature:
    """Return the signature of `search` with the options of the objectives by name, for `help`."""
    signature = inspect.signature(search)
    *named, _ = signature.parameters.values()
    own = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.annotation)
        for one in options()
        if one.objectives
    ]
    return signature.replace(parameters=[*named, *own])


search.__signature__ = _signature()  # type: ignore[attr-defined]  # read by inspect
