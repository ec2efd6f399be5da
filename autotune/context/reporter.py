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
    """The calls of a search, in this order. No method may raise, or take noticeable time.

    opening ─► (phase | probing ─► probed | note | detail)* ─► finished | interrupted
    """

    def opening(self, lines: Sequence[str], knobs: Sequence[Knob]) -> None:
        """Show that the search begins: `lines` name study, device, task and what is held, `knobs` what may differ."""

    def phase(self, purpose: Purpose) -> None:
        """Show that the next stage begins, in which probes have this purpose; the first is `baseline`."""

    def probing(self, number: int, config: Config, purpose: str) -> None:
        """Show that a probe starts."""

    def probed(self, trial: Trial, verdict: Verdict, best_so_far: bool) -> None:
        """Show that a probe ended, with a measurement or a failure."""

    def note(self, text: str) -> None:
        """Show a message for people, in one or two sentences."""
        ...

    def detail(self, text: str) -> None:
        """Show what the search does or has decided: for those who watch it, or want to know everything afterwards."""
        ...

    def finished(self, recommendation: Recommendation) -> None:
        """Show the answer of the search."""

    def interrupted(self, view: StudyView, resume_command: str) -> None:
        """Show what is kept of a search that was stopped; `resume_command` continues it."""


class SilentReporter:
    """A reporter that shows nothing: the default of the library, whose caller owns the terminal."""

    def note(self, *reported: object, **named: object) -> None:
        """Ignore what is reported."""

    opening = phase = probing = probed = detail = finished = interrupted = note
