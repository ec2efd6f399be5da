"""The certainty that an answer beats the baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotune.core.codes import Code
from autotune.report import phrases
from autotune.study.recommendation import Recommendation


@dataclass(frozen=True, kw_only=True)
class Certainty:
    """The certainty that the answer beats the baseline, as a word, and the reason for it."""

    word: Literal["clear", "likely", "tie", "not known"]
    why: str


def certainty(best: Recommendation) -> Certainty | None:
    """Return the certainty of the gain; None if no gain is claimed or there is no baseline."""
    if best.undecided is not None:
        if best.undecided.rounds <= 1 and phrases.rounds_run(best) == 1:
            return Certainty(word="not known", why="single probes only")
        if best.undecided.beside_others:
            return Certainty(word="not known", why="other work slowed the baseline")
        return Certainty(word="tie", why="the rounds could not tell the two apart")
    if best.params == best.baseline or best.speedup is None:
        return None
    spread = phrases.interval(best)
    if not phrases.is_better(best):
        if phrases.is_slower(best):
            return None
        return Certainty(
            word="tie", why=f"the 95% interval ({spread}) includes 1" if spread else "no gain was measured"
        )
    if not spread:
        return Certainty(word="likely", why=f"measured {phrases.times(best.rounds)}, without an interval")
    if best.rounds < 2:
        return Certainty(word="likely", why="one probe of each was compared, by the usual noise")
    if any(warning.code is Code.CONFIRMATION_INTERFERENCE for warning in best.warnings):
        return Certainty(word="likely", why="there was interference in too many rounds")
    return Certainty(word="clear", why=f"95% interval over {best.rounds} interleaved rounds of separate processes")
