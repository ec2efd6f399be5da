"""The scores of what was probed: in the search alone, in rounds too, or in one stage."""

from __future__ import annotations

from collections.abc import Collection

from autotune.core.records import Config, Purpose
from autotune.core.stats import typical_rate
from autotune.study.history import History
from autotune.study.valid_probes import is_spoiled

SEARCHING: tuple[Purpose, ...] = ("baseline", "search")
STAGES: tuple[tuple[Purpose, ...], ...] = (SEARCHING, ("confirm",), ("ablation",))


def search_scores(history: History) -> dict[Config, float]:
    """Return the mean score of each configuration that the search itself probed, corrected for drift."""
    return {config: typical_rate(values) for config, values in scores_of(history, SEARCHING).items()}


def all_scores(history: History) -> dict[Config, list[float]]:
    """Return the scores of all probes of each configuration, those of rounds included, corrected for drift."""
    return scores_of(history, [purpose for stage in STAGES for purpose in stage])


def scores_of(history: History, purposes: Collection[Purpose]) -> dict[Config, list[float]]:
    """Return the scores of probes for these purposes, without those that interference spoiled unless it spoiled most.

    A burst of other work made a change without effect look 4.75 times as fast. It only slows down: what was spoiled and
    still is faster than all others is at least as fast.
    """
    of_these = [one for one in history.drift_corrected if one.trial.purpose in purposes]
    ran = [one for one in of_these if one.verdict.feasible and one.verdict.value]
    calm = [one for one in ran if not is_spoiled(one.trial.result)]
    best = max((one.verdict.value or 0.0 for one in calm), default=0.0)
    known = [one for one in ran if not is_spoiled(one.trial.result) or (one.verdict.value or 0.0) > best]
    scores: dict[Config, list[float]] = {}
    for trial, verdict in known if 2 * len(calm) > len(ran) else ran:
        scores.setdefault(trial.config, []).append(verdict.value or 0.0)
    return scores
