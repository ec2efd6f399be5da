"""The gain of a change beside other settings than the answer's, where it was not measured in the answer itself.

    answer     64×2 bf16 nhwc                         nothing ran without nhwc
    pair       16×8 bf16 nhwc, 16×8 bf16 nchw         1.90×, beside batch 16×8

The two of a pair differ in the change alone. Both ran in rounds of the confirmation, or both in single probes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cached_property

from autotune.answer.confirmation_rounds import FEWEST_ROUNDS
from autotune.core.records import Config, Record, Value
from autotune.knobs.changes import changes_between
from autotune.report.explain import canonical_for
from autotune.report.gain import Basis, Gain
from autotune.study.recommendation import Change, Recommendation
from autotune.study.summary import ConfigSummary
from autotune.study.view import StudyView, summaries

MOST_OTHERS = 1  # settings of a pair that are not the answer's: beside more of them a change may gain something else


class Nearby(Record, frozen=True, kw_only=True):
    """The gain of a change in such a pair."""

    gain: Gain
    beside: tuple[dict[str, Value], ...]  # settings of the pair that are not the answer's; none if `is_alone`
    is_alone: bool  # the pair is the baseline and the baseline with the change


class NearbyPairs:
    """The pairs of a study, those of the confirmation first."""

    def __init__(self, view: StudyView, best: Recommendation) -> None:
        self._view = view
        self._params, self._baseline = (canonical_for(view.request, one) for one in (best.params, best.baseline))

    @cached_property
    def _pools(self) -> list[dict[Config, ConfigSummary]]:
        raced = [one for one in summaries(self._view) if one.compared is not None and len(one.trials) >= FEWEST_ROUNDS]
        explored = dataclasses.replace(self._view, recommendation=None)  # without rounds, which ran in other minutes
        return [{one.config: one for one in found if one.feasible} for found in (raced, summaries(explored))]

    def gain(self, change: Change) -> Nearby | None:
        """Return the gain in the pair that is most like the answer; None if there is none that is like it enough."""
        found = [one for pool in self._pools for one in self._gains(change, pool)]
        return min(found, key=lambda one: (one.is_alone, len(one.beside)), default=None)

    def _gains(self, change: Change, pool: Mapping[Config, ConfigSummary]) -> Iterator[Nearby]:
        for config, made in pool.items():
            without = canonical_for(self._view.request, {**config.values, **change.before})
            is_pair = without in pool and all(config[name] == value for name, value in change.values.items())
            if not is_pair or len(changes_between(config.values, without.values)) != 1:
                continue  # or other settings cannot stay without the change
            is_alone = without == self._baseline
            others = () if is_alone else changes_between(self._params.values, config.values)
            if len(others) <= MOST_OTHERS:
                by: Basis = "probes" if made.compared is None else "rounds"
                ratio = made.score / pool[without].score
                beside = tuple({name: config[name] for name in names} for names in others)
                yield Nearby(gain=Gain(ratio=ratio, low=None, high=None, by=by), beside=beside, is_alone=is_alone)
