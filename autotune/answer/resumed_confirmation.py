"""Decides which probes of an interrupted confirmation or ablation count when it is resumed. Pure.

    recorded    A B C base · base C B A · A B          here the search was killed
    resumed     A B C base · base C B A · A B C base   whole rounds count, the third is run anew

A round compares probes that ran close together, so an incomplete round is discarded. From the first round whose
configurations or order differ, all rounds are run anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from autotune.core.records import Config, Purpose
from autotune.study.valid_probes import Judged, valid_trials


def interrupted(
    judged: Sequence[Judged], answered: int, baseline: Config
) -> tuple[ResumedConfirmation, ResumedConfirmation]:
    """Return the confirmation and the ablation to go on with; `answered` as in `ResumedConfirmation`.

    An ablation directly follows an answer, and its round numbers continue those of the confirmation. So both are
    resumed: the confirmation finds all of its rounds and comes to the same answer.
    """
    since = judged[answered:]
    if not since or any(trial.purpose != "ablation" for trial, _ in since):
        return ResumedConfirmation(judged, answered, baseline), ResumedConfirmation()
    return ResumedConfirmation(judged[:answered], 0, baseline), ResumedConfirmation(since, 0, baseline, "ablation")


class ResumedConfirmation:
    """The probes at the end of a study that belong to rounds without an answer; false if there are none."""

    def __init__(
        self, judged: Sequence[Judged] = (), answered: int = 0, baseline: Config | None = None,
        purpose: Purpose = "confirm",
    ) -> None:  # fmt: skip
        """Take the study's probes, of which the first `answered` were there when it last came to an answer."""
        since = reversed(judged[answered:])
        last = [*takewhile(lambda one: one.trial.purpose == purpose, since)][::-1]
        candidates = {trial.config for trial, _ in last} - {baseline}
        settled = _settled(last) if last else []
        failed = {trial.config for trial, verdict in settled if not verdict.feasible}
        self._probes = settled if candidates - failed else []  # a confirmation in which all failed is over
        self._baseline = baseline

    def __bool__(self) -> bool:
        return bool(self._probes)

    def __len__(self) -> int:
        """Return how many of its probes `round` has not returned yet."""
        return len(self._probes)

    @property
    def finalists(self) -> list[Config]:
        """The finalists besides the baseline, in their order; empty if not even the first round is complete."""
        first: list[Config] = []
        for trial, _ in self._probes:
            if trial.config in first:
                break
            first.append(trial.config)
        else:
            if first[-1:] != [self._baseline]:  # the baseline closes the first round
                return []
        return [config for config in first if config != self._baseline]

    def round(self, configs: Sequence[Config]) -> Sequence[Judged] | None:
        """Return the next round if it has exactly these configurations in this order; else None, now and later."""
        left, self._probes = self._probes, []
        for start in range(len(left) - len(configs) + 1):
            found = left[start : start + len(configs)]
            if [trial.config for trial, _ in found] == list(configs):
                self._probes = left[start + len(configs) :]
                return found
        return None


def _settled(probes: Sequence[Judged]) -> list[Judged]:
    """Return the probes, without accidents that were tried again; repeats stand in place of the first probe."""
    probes = sorted(valid_trials(probes), key=lambda one: one.trial.repeats or one.trial.number)
    following = [*(trial.config for trial, _ in probes[1:]), None]
    return [
        one
        for one, after in zip(probes, following, strict=True)
        if not (one.trial.result.outcome.retried and one.trial.config == after)
    ]
