"""The descent from the best configuration to the smallest one that is still fast enough, by one knob. Pure.

    fastest  ●───────────────────────────────────────────┐  all other knobs equal
    batch    8    16    32    64   128   256   512  1024 │
    rate     ·     ·     ·     ?     ·     ·     ·     ● │  1: the middle of those below
    rate     ·     ?     ·     ●     ·     ·     ·     ● │  2: fast enough: the middle of those below that
    rate     ·     ○     ?     ●     ·     ·     ·     ● ┘  3: too slow: the middle of those between
    rate     ·     ○     ○     ◐     ?     ·     ·     ● ┘  4: fast enough within the noise of a probe: the next larger

Time per sample falls with the batch, and memory grows with it. So halving finds the smallest batch that is fast enough,
whether the knee or the least memory is sought; the same holds for every other knob that declares that it makes memory
grow.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from autotune.answer.choice import luck
from autotune.core.records import SEARCH_PURPOSES, Config, StudyRequest
from autotune.core.results import Trial
from autotune.core.stats import MOST_PROBE_NOISE
from autotune.knobs import KNOBS
from autotune.knobs import knob as named
from autotune.knobs.base import Knob, MemoryEffect
from autotune.study.valid_probes import Judged


def scored(judged: Sequence[Judged]) -> list[tuple[Trial, float]]:
    """Return the usable probes of the search with their scores."""
    return [(t, v.value) for t, v in judged if t.purpose in SEARCH_PURPOSES and v.feasible and v.value is not None]


def smaller(
    judged: Sequence[Judged], open_configs: Sequence[Config], request: StudyRequest, *, slack: float
) -> Config | None:
    """Return the next probe on the way to the knee among `open_configs`; None if nothing smaller may be fast enough.

    `slack` is the share of the best score that may be given up; the possible error of a single probe is added to it. If
    the smallest that is fast enough needs that error, the next larger one is probed too, because the confirmation,
    which decides, then needs it. No global batch below the baseline's is tried.
    """
    found, least = scored(judged), request.baseline.global_batch_size()
    if not found:
        return None
    best, most = max(found, key=lambda pair: pair[1])
    fast = [
        (trial.config, value)
        for trial, value in found
        if value >= most * (1 - slack) * (1 - max(MOST_PROBE_NOISE, luck([trial], [best])))
    ]
    anchor, value = min(fast, key=lambda pair: (pair[0].global_batch_size(), -pair[1]))
    steps = anchor.gradient_accumulation_steps
    tried = {trial.config for trial, _ in judged if trial.config.gradient_accumulation_steps == steps}
    among = [one for one in open_configs if one.gradient_accumulation_steps == steps]
    batch, among = named("batch_size"), [one for one in among if one.global_batch_size() >= least]
    below = _halfway(anchor, batch, among, tried)
    return below if below or value >= most * (1 - slack) else _above(anchor, batch, among, tried)


def leaner(judged: Sequence[Judged], open_configs: Sequence[Config], *, slack: float, host: bool) -> Config | None:
    """Return the next probe of the descent among `open_configs`; None if no smaller one may be fast enough.

    `slack` is the share of the best score that may be given up. `host` says that the memory of the host counts.
    """
    found = scored(judged)
    if not found:
        return None
    enough = max(value for _, value in found) * (1 - slack)
    anchor = min((trial for trial, value in found if value >= enough), key=_peak).config
    tried = {trial.config for trial, _ in judged}
    effects = (MemoryEffect.GROWS, MemoryEffect.GROWS_HOST) if host else (MemoryEffect.GROWS,)
    for knob in KNOBS:
        config = _halfway(anchor, knob, open_configs, tried) if knob.memory in effects else None
        if config is not None:
            return config
    return None


def _halfway(anchor: Config, knob: Knob, open_configs: Sequence[Config], tried: Collection[Config]) -> Config | None:
    """Return the middle of the open ones that are below `anchor` by `knob` alone, and above all tried ones below it."""
    ladder = _below(anchor, knob, (*open_configs, *tried))
    slow = [i for i, config in enumerate(ladder) if config in tried]
    ladder = [config for config in ladder[max(slow, default=-1) + 1 :] if config in open_configs]
    return ladder[len(ladder) // 2] if ladder else None


def _above(anchor: Config, knob: Knob, open_configs: Sequence[Config], tried: Collection[Config]) -> Config | None:
    """Return the next larger configuration by `knob` alone, if it is open."""
    larger = [
        one for one in (*open_configs, *tried)
        if knob.size(one[knob.name]) > knob.size(anchor[knob.name]) and _others(one, knob) == _others(anchor, knob)
    ]  # fmt: skip
    nearest = min(larger, key=lambda one: knob.size(one[knob.name]), default=None)
    return nearest if nearest in open_configs else None


def _below(anchor: Config, knob: Knob, configs: Sequence[Config]) -> list[Config]:
    """Return the configurations with smaller values of `knob` and all other knobs equal, ascending.

    For each value it is the one nearest to the anchor's global batch, because accumulation makes up for a smaller
    micro-batch.
    """
    nearest: dict[float, Config] = {}
    for config in configs:
        value = knob.size(config[knob.name])
        if value >= knob.size(anchor[knob.name]) or _others(config, knob) != _others(anchor, knob):
            continue
        known = nearest.get(value)
        if known is None or _distance(config, anchor) < _distance(known, anchor):
            nearest[value] = config
    return [nearest[value] for value in sorted(nearest)]


def _others(config: Config, knob: Knob) -> list[object]:
    """Return the values that have to be equal: those of all knobs but `knob` and gradient accumulation."""
    follows = ("gradient_accumulation_steps", knob.name)
    return [config[other.name] for other in KNOBS if other.name not in follows]


def _distance(config: Config, anchor: Config) -> int:
    return abs(config.global_batch_size() - anchor.global_batch_size())


def _peak(trial: Trial) -> int:
    assert trial.result.measurement is not None, "only what was measured is feasible"
    return trial.result.measurement.memory.bytes
