"""`autotune.search` for Python: the same engine and the same errors as the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Literal

from autotune.errors import UsageError
from autotune.knobs import knob
from autotune.launch.subprocess import SubprocessLauncher
from autotune.records import Limit, ObjectiveName, Stability, Value
from autotune.sampler_names import SamplerName
from autotune.targets import resolve
from autotune.tuning.recommendation import Recommendation
from autotune.tuning.reporter import Reporter, SilentReporter
from autotune.tuning.settings import Settings
from autotune.tuning.tuner import search as run
from autotune.units import parse_seconds


def search(
    target: str | PathLike[str],
    *,
    time_budget: str | float = "10m",
    probes: int | None = None,
    study: str | PathLike[str] | None = None,
    mode: Literal["auto", "resume", "fresh"] = "auto",
    device: str | None = None,
    objective: ObjectiveName = "throughput",
    within: float | None = None,
    price: float | None = None,
    verify_goodput: bool = False,
    exact: bool = False,
    global_batch: int | Literal["keep", "free"] | None = None,
    memory_limit: str | None = None,
    headroom: float | None = None,
    baseline: Mapping[str, Value] | None = None,
    space: Mapping[str, Sequence[Value]] | None = None,
    tune: Sequence[str] | None = None,
    sampler: SamplerName = "structured",
    stability: Stability = "quick",
    loss_tolerance: float | None = None,
    seed: int = 0,
    reporter: Reporter | None = None,
) -> Recommendation:
    """Search the best training configuration for `target` on this machine: the fastest, unless `objective` says else.

    `target` is a file, a module, or module:attribute, as for `autotune search`; probes are processes of their own, so
    functions cannot be handed over. `time_budget` is in seconds, or a text like `10m`; `within` the share of the
    fastest rate that objective "memory" may give up, in [0, 1); `price` what an hour of this machine costs, for
    objective "cost"; `verify_goodput` trains with several global batches after the answer, to check what objective
    "time-to-quality" estimates; with `exact` only those knobs move that keep what is computed, up to the order of
    rounding; `headroom` is a share of the memory limit, in [0, 1); `loss_tolerance` a share of the full-precision
    loss decrease, in [0, 1). `space` lists the values that a knob may take, by knob name: a tuple of two whole numbers
    is a range, a list are values. Prints nothing; hand in a `reporter` to follow. Raises `UsageError`, `TargetError`,
    `StudyError`, `EnvironmentUnfit` or `NoRecommendation`.
    """
    try:
        seconds = parse_seconds(time_budget) if isinstance(time_budget, str) else float(time_budget)
        settings = Settings(
            target=fspath(target),
            study=None if study is None else Path(study),
            mode=mode,
            time_budget_seconds=seconds,
            probes=probes,
            device=device,
            objective=objective,
            within=within,
            price=price,
            verify_goodput=verify_goodput,
            exact=exact,
            global_batch=global_batch,
            memory_limit=memory_limit,
            headroom=headroom,
            baseline={_known(name): value for name, value in (baseline or {}).items()},
            limits={_known(name): _limit(name, values) for name, values in (space or {}).items()},
            tune=None if tune is None else tuple(_known(name) for name in tune),
            sampler=sampler,
            stability=stability,
            loss_tolerance=loss_tolerance,
            seed=seed,
        )
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"{error}. The argument was probably meant otherwise. See help(autotune.search) for what each one takes."
        ) from error
    resolve(settings.target)  # a missing file is told before a folder is made for its study
    return run(settings, SubprocessLauncher(), reporter or SilentReporter())


def _known(name: str) -> str:
    try:
        return knob(name).name
    except KeyError:
        raise UsageError(
            f"There is no knob {name!r}. The name was probably mistyped. See autotune.knobs.KNOBS."
        ) from None


def _limit(name: str, values: Sequence[Value]) -> Limit:
    for value in values:
        knob(name).check(value)
    if isinstance(values, tuple) and len(values) == 2 and knob(name).ordered:
        return Limit(low=int(values[0] or 0), high=int(values[1] or 0))
    return Limit(values=tuple(values))
