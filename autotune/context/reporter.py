"""The interface through which a search reports what it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autotune.core.records import Config, Purpose
from autotune.core.results import Trial, Verdict
from autotune.knobs.base import Knob
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView


class Reporter(Protocol):
    """What a search calls, in this order. No method may raise, or take noticeable time.

    opening ─► (phase | probing ─► probed | note | detail)* ─► finished | interrupted
    """

    def opening(self, lines: Sequence[str], knobs: Sequence[Knob]) -> None:
        """Show that the search begins: study, device, task and what is held in `lines`, `knobs` that may differ."""

    def phase(self, purpose: Purpose) -> None:
        """Show that the search goes on to its next stage, that of probes with this purpose; the first is `baseline`."""

    def probing(self, number: int, config: Config, purpose: str) -> None:
        """Show that a probe starts."""

    def probed(self, trial: Trial, verdict: Verdict, best_so_far: bool) -> None:
        """Show that a probe ended, well or badly."""

    def note(self, text: str) -> None:
        """The search has a message for people, in one or two sentences."""
        ...

    def detail(self, text: str) -> None:
        """The search says what it does or decided: shown while it happens, and kept for those who want to know all."""
        ...

    def finished(self, recommendation: Recommendation) -> None:
        """Show the answer of the search."""

    def interrupted(self, view: StudyView, resume_command: str) -> None:
        """Show what is kept of a search that was stopped; `resume_command` goes on with it."""


class SilentReporter:
    """Says nothing: the default of the library, whose caller owns the terminal."""

    def note(self, *reported: object, **named: object) -> None:
        """Ignore what is reported."""

    opening = phase = probing = probed = detail = finished = interrupted = note
