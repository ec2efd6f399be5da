"""After the search, where memory counts: which configuration might need less and still be fast enough. Pure.

    fastest  ●───────────────────────────────────────────┐  all else alike
    batch    8    16    32    64   128   256   512  1024 │
    rate     ·     ·     ·     ?     ·     ·     ·     ● │  1: the middle of what is below
    rate     ·     ?     ·     ●     ·     ·     ·     ● │  2: fast enough: the middle of what is below that
    rate     ·     ○     ?     ●     ·     ·     ·     ● ┘  3: too slow: the middle of what is between

Time per sample falls with the batch and memory grows, so that the smallest batch that is fast enough is found by
halving; the same goes for every knob that says that it makes memory grow.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.knobs import KNOBS
from autotune.knobs.base import Knob, MemoryEffect
from autotune.records import Config
from autotune.results import Trial, Verdict
from autotune.tuning.disturbance import FOUND

Judged = Sequence[tuple[Trial, Verdict]]


def leaner(judged: Judged, open_configs: Sequence[Config], *, slack: float, host: bool) -> Config | None:
    """The next probe of the descent among `open_configs`, or None: nothing leaner is left that may be fast enough.

    `slack` is the share of the best score that may be given up; `host`: it is the host's memory that counts.
    """
    found = [(t, v.value) for t, v in judged if t.purpose in FOUND and v.feasible and v.value is not None]
    if not found:
        return None
    enough = max(value for _, value in found) * (1 - slack)
    anchor = min((trial for trial, value in found if value >= enough), key=_peak).config
    tried = {trial.config for trial, _ in judged}
    effects = (MemoryEffect.GROWS, MemoryEffect.GROWS_HOST) if host else (MemoryEffect.GROWS,)
    for knob in KNOBS:
        if knob.memory not in effects:
            continue
        ladder = _below(anchor, knob, (*open_configs, *tried))
        slow = [i for i, config in enumerate(ladder) if config in tried]
        ladder = [config for config in ladder[max(slow, default=-1) + 1 :] if config in open_configs]
        if ladder:
            return ladder[len(ladder) // 2]
    return None


def _below(anchor: Config, knob: Knob, configs: Sequence[Config]) -> list[Config]:
    """Configurations with smaller values of `knob` and all else alike, ascending.

    Of each value the one nearest to the anchor's global batch, for accumulation makes up for a smaller micro-batch.
    """
    nearest: dict[float, Config] = {}
    for config in configs:
        value = float(config[knob.name] or 0)
        if value >= float(anchor[knob.name] or 0) or _others(config, knob) != _others(anchor, knob):
            continue
        known = nearest.get(value)
        if known is None or _distance(config, anchor) < _distance(known, anchor):
            nearest[value] = config
    return [nearest[value] for value in sorted(nearest)]


def _others(config: Config, knob: Knob) -> list[object]:
    """The knobs that must stay: all that move memory, and what changes how fast one batch is."""
    follows = ("gradient_accumulation_steps", knob.name)
    return [config[other.name] for other in KNOBS if other.name not in follows]


def _distance(config: Config, anchor: Config) -> int:
    return abs(config.global_batch_size() - anchor.global_batch_size())


def _peak(trial: Trial) -> int:
    assert trial.result.measurement is not None, "only what was measured is feasible"
    return trial.result.measurement.memory.bytes
