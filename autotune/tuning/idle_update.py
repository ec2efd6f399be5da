"""Finds whether another implementation of the optimizer's update saves time, by the updates that probes timed.

    step    |forward, backward, loading ................|update|

Two probes of one configuration differ by more than most updates take: by the rates of steps, a faster update seemed to
save 9 to 375 % of a step, although updates took only 2 to 6 % of it. So every probe times its updates.
"""

from __future__ import annotations

from autotune.answer.choice import TIE
from autotune.core.records import Config, Value
from autotune.core.results import Measurement
from autotune.knobs import KNOBS
from autotune.study.history import History
from autotune.study.valid_probes import is_spoiled


def idle_updates(history: History, config: Config, baseline: Config) -> list[str]:
    """Return the names of the changes of `config` to the update that save at most 2 % of its step; none if unknown.

    The saving is known if an update like its own and one like the baseline's were timed, and if a rate is known: that
    of `config`, or of the configuration that differs from it in the update alone.
    """
    changed = [one.name for one in KNOBS if one.only_updates and config[one.name] != baseline[one.name]]
    if not changed:
        return []
    as_before = Config(values={**config.values, **{name: baseline[name] for name in changed}})
    own, before = (_update_seconds(history, one) for one in (config, as_before))
    rates = [one.samples_per_second for one in _calm(history, config, as_before)]
    if own is None or before is None or not rates:
        return []
    step_seconds = config.global_batch_size() / max(rates)
    return changed if before - own <= TIE * step_seconds else []


def _update_seconds(history: History, config: Config) -> float | None:
    """Return the least seconds of an update as `config` makes it; None if none was timed.

    Other processes only add to it, as the documentation of `timeit.repeat` says about any short piece of code: on a
    busy host the median of a probe was 0.9 to 3 ms and its least value 0.80 to 0.97 ms, with the same update.
    """
    return min(
        (
            seconds
            for one, _ in history.judged
            if _updates(one.config) == _updates(config) and one.result.measurement is not None
            for seconds in one.result.measurement.update_seconds
        ),
        default=None,
    )


def _updates(config: Config) -> list[Value]:
    """Return the values that decide the seconds of an update: its implementation, and the threads that compute it."""
    threads: list[Value] = [one.computing_threads(config[one.name], 0) for one in KNOBS]
    return [config[one.name] for one in KNOBS if one.only_updates] + threads


def _calm(history: History, *configs: Config) -> list[Measurement]:
    """Return the measurements of these configurations without those that interference spoiled."""
    return [
        one.result.measurement
        for one, _ in history.judged
        if one.config in configs and one.result.measurement is not None and not is_spoiled(one.result)
    ]
