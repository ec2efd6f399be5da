"""Shows a search on a terminal: one permanent line per probe, and one live line below them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from autotune.core.records import Config, Purpose
from autotune.core.results import Outcome, Trial, Verdict
from autotune.harmless import cropped
from autotune.knobs import KNOBS
from autotune.knobs.base import Knob
from autotune.report.columns import GAP, cells, columns, fitting_columns, header, line_width
from autotune.report.phrases import (
    configuration_phrase,
    outcome_word,
    plain,
    purpose_word,
    reason,
    samples_per_second,
)
from autotune.report.probes import started_phrase
from autotune.report.running import STAGES, MeasuredConfig, best_phrase
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView
from autotune.units import counted, format_clock, format_seconds

REDRAWS_PER_SECOND = 2  # enough to see it live; each redraw costs about a millisecond of a core that probes may need
WIDEST_BAR, NARROWEST_BAR = 22, 6  # characters
HINT = " · Ctrl-C keeps the study"


def outcome_style(trial: Trial, verdict: Verdict, best_so_far: bool = False) -> str:
    """Return the colour of a result, which is never its only sign: a word is always shown, too."""
    if verdict.feasible:
        return "bold green" if best_so_far else ""
    if trial.result.outcome in (Outcome.OK, Outcome.UNSTABLE):
        return "magenta"
    return "yellow" if trial.result.outcome.out_of_memory else "red"


def probe_line(
    trial: Trial, verdict: Verdict, *, knobs: Sequence[Knob] = KNOBS, best_so_far: bool = False,
    width: int | None = None,
) -> Text:  # fmt: skip
    """Return a probe's line of the table with columns for `knobs`; `width` in characters crops only the reason."""
    chosen = fitting_columns(columns(knobs), width)
    word = outcome_word(trial, verdict, best_so_far)
    text = reason(verdict) or word
    room = None if width is None else width - line_width(chosen)
    if room is not None and len(text) > room:
        text = cropped(text, room) if room > len(word) + 10 else word
    line = Text(cells(chosen, trial.number, trial.config, trial.result.measurement))
    return line.append(text, outcome_style(trial, verdict, best_so_far))


def _rate(trial: Trial) -> str:
    measured = trial.result.measurement
    assert measured is not None, "only what was measured is feasible"
    return samples_per_second(measured.samples_per_second)


class TerminalReporter:
    """Writes to `console`, which should be the one of standard error: results go to standard output.

    It redraws only on a real terminal and only if `progress`; otherwise every event is one plain, complete line.
    `quiet` prints nothing but an interruption. `verbose` also prints the work and decisions between probes, which
    otherwise only the live line shows, how each probe started, and where a failure came from. Use it as a context
    manager, so that the terminal is restored in any case.
    """

    def __init__(
        self,
        console: Console,
        *,
        quiet: bool = False,
        verbose: bool = False,
        progress: bool = True,
        budget_seconds: float | None = None,
    ) -> None:
        self._console = console
        self._quiet, self._verbose = quiet, verbose
        # FORCE_COLOR makes rich treat a file as a terminal: colours are wanted there, cursor movements are not.
        self._is_live = progress and not quiet and console.file.isatty() and not console.is_dumb_terminal
        self._budget_seconds = budget_seconds
        self._began = time.monotonic()
        self._live: Live | None = None
        self._running: tuple[int, Config, str] | None = None
        self._doing = ""  # between probes
        self._probe_began = self._began
        self._spinner = Spinner("dots")
        self._has_header = False
        self._knobs: Sequence[Knob] = KNOBS
        self._probes = 0
        self._stage: Purpose = "baseline"
        self._best: MeasuredConfig | None = None
        self._baseline: MeasuredConfig | None = None

    def __enter__(self) -> TerminalReporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the live line and show the cursor again; may be called twice."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def opening(self, lines: Sequence[str], knobs: Sequence[Knob] = KNOBS) -> None:
        """Print the lines, the first one bold; `knobs` get columns."""
        self._began, self._knobs = time.monotonic(), knobs
        for index, line in enumerate(lines):
            self._print(Text(plain(line), "bold" if index == 0 else ""))
        self._print(Text())

    def phase(self, purpose: Purpose) -> None:
        """Name the stage in the live line."""
        self._stage = purpose

    def probing(self, number: int, config: Config, purpose: str) -> None:
        """Show the probe in the live line."""
        self._running, self._probe_began, self._doing = (number, config, purpose), time.monotonic(), ""
        if not self._has_header:
            self._has_header = True
            self._print(Text(header(fitting_columns(columns(self._knobs), self._width)), "dim"))
        if self._is_live and self._live is None:
            self._live = Live(
                console=self._console,
                get_renderable=self._below,
                refresh_per_second=REDRAWS_PER_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def probed(self, trial: Trial, verdict: Verdict, best_so_far: bool) -> None:
        """Print the probe's line."""
        self._running, self._probes = None, self._probes + 1
        measured = trial.result.measurement
        if measured is not None and trial.purpose == "baseline":
            self._baseline = (trial.config, measured)
        if measured is not None and best_so_far:
            self._best = (trial.config, measured)
        self._print(probe_line(trial, verdict, knobs=self._knobs, best_so_far=best_so_far, width=self._width))
        if not self._verbose:
            return
        failure = trial.result.failure
        if started := started_phrase(trial.result):
            self._print(Text(f"     {started}", "dim"))
        if failure is not None:
            where = f" at {plain(failure.user_frame)}" if failure.user_frame else ""
            self._print(Text(f"     in phase {plain(failure.phase)}{where}: {plain(failure.evidence)}", "dim"))

    def note(self, text: str) -> None:
        """Print the sentence, which also becomes the present state in the live line."""
        self._doing = ""
        self._print(Text(plain(text), "dim"))

    def detail(self, text: str) -> None:
        """Show the sentence in the live line; print it only if verbose."""
        if self._verbose:
            self.note(text)
        self._doing = text

    def finished(self, recommendation: Recommendation) -> None:
        """Print how much was tried, and what is known about the rest; the result itself belongs on standard output."""
        self.close()
        text, before = counted(self._probes, "probe"), recommendation.probes - self._probes
        if before == 0:
            text += f" in {format_seconds(recommendation.seconds)}"
        elif before > 0:
            text += f" now, {before} before"
        rest = f"; {recommendation.certificate.text}" if recommendation.certificate else ""
        self._print(Text(f"\n{text}{plain(rest)}\n", "dim"))

    def interrupted(self, view: StudyView, resume_command: str) -> None:
        """Print what is kept and how to go on, even if quiet."""
        self.close()
        lines = [f"Interrupted. The study keeps {counted(len(view.trials), 'probe')} in {view.folder}."]
        judged = (one for one in view.judged if one.trial.purpose != "confirm")
        usable = [(verdict.value or 0.0, trial) for trial, verdict in judged if verdict.feasible]
        if usable:
            best = max(usable, key=lambda pair: pair[0])[1]  # of all runs of the study, not only this one
            what = f"{_rate(best)} with {configuration_phrase(best.config.values, view.knobs)}"
            own = [trial for _, trial in usable if trial.config == view.request.baseline]
            if len(own) == len(usable):
                lines.append(f"Only the baseline was measured so far: {what}.")
            else:
                base = "" if best in own or not own else f", your baseline {_rate(own[-1])}"
                whose = "your baseline, " if best in own else ""
                lines.append(f"Best so far, by single probes, which decide nothing: {whose}{what}{base}.")
        lines.append(f"Go on with: {resume_command}")
        for line in lines:
            self._console.print(Text(plain(line)), soft_wrap=True)

    @property
    def _width(self) -> int | None:
        return self._console.width if self._console.file.isatty() else None

    def _print(self, text: Text) -> None:
        if not self._quiet:
            self._console.print(text, soft_wrap=True)

    def _below(self) -> RenderableType:
        """Return the lines below the table: the running probe and the state of the search."""
        parts: list[RenderableType] = []
        if self._running is not None:
            number, config, purpose = self._running
            chosen = fitting_columns(columns(self._knobs), self._width)
            row = Table.grid()
            seconds = format_seconds(time.monotonic() - self._probe_began)
            row.add_row(cells(chosen, number, config, None), self._spinner, f" {purpose_word(purpose)} {seconds}")
            parts.append(row)
        elif self._doing:
            parts.append(Text(plain(self._doing), "dim", no_wrap=True, overflow="ellipsis"))
        return Group(*parts, Text(), self._progress_line())

    def _progress_line(self) -> Text:
        """`Explore · best 2,605 samples/s (17.1× baseline)  ███░░  5:12 / 10:00 · 27 probes · Ctrl-C keeps the study`.

        If there is no room, first the bar is left out, then the hint.
        """
        elapsed, budget = time.monotonic() - self._began, self._budget_seconds
        doing = STAGES[self._stage]
        if self._best is not None and self._stage != "ablation":  # then the answer, which is measured better, is shown
            doing += f" · {best_phrase(self._best, self._baseline)}"
        state = format_clock(elapsed) + (f" / {format_clock(budget)}" if budget is not None else "")
        state += f" · {counted(self._probes, 'probe')}"
        room = self._console.width - len(doing + GAP + state) - 1
        if len(HINT) <= room:
            state, room = state + HINT, room - len(HINT)
        bar, room = "", min(WIDEST_BAR, room - len(GAP))
        if budget is not None and room >= NARROWEST_BAR:
            filled = round(room * min(1.0, elapsed / budget))
            bar = "█" * filled + "░" * (room - filled) + GAP
        return Text(doing + GAP + bar + state, no_wrap=True, overflow="ellipsis")
