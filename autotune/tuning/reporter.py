"""The seam between a search and whoever watches it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autotune.core.records import Config
from autotune.core.results import Trial, Verdict
from autotune.knobs.base import Knob
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView


class Reporter(Protocol):
    """Is told what a search does, in this order; must not raise, and must not take noticeable time.

    opening ─► (probing ─► probed | note)* ─► finished | interrupted
    """

    def opening(self, lines: Sequence[str], knobs: Sequence[Knob]) -> None:
        """The search begins; `lines` name study, device, task and what is held, `knobs` may differ. Told once."""

    def probing(self, number: int, config: Config, purpose: str) -> None:
        """A probe starts now."""

    def probed(self, trial: Trial, verdict: Verdict, best_so_far: bool) -> None:
        """A probe ended, well or badly."""

    def note(self, text: str) -> None:
        """Something that a person would want to know, in one sentence."""

    def finished(self, recommendation: Recommendation) -> None:
        """The search is over and has an answer."""

    def interrupted(self, view: StudyView, resume_command: str) -> None:
        """The search was stopped; what it has is kept and `resume_command` goes on with it."""


class SilentReporter:
    """Says nothing: the default of the library, whose caller owns the terminal."""

    def note(self, *reported: object, **named: object) -> None:
        """Ignore what is reported."""

    opening = probing = probed = finished = interrupted = note
