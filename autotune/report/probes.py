"""The table of all probes: configuration, result, seconds of each phase, and path of the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.interference_readings import GpuUse, HostInterference
from autotune.core.results import Measurement, ProbeResult, Trial
from autotune.harmless import cropped
from autotune.knobs import touched
from autotune.knobs.changes import BATCH_KNOBS
from autotune.report import phrases
from autotune.report.columns import Column, columns
from autotune.report.expected import deviation, expectation, prediction_of
from autotune.sampler.prediction import Prediction
from autotune.study import disk
from autotune.study.shown import shown_value
from autotune.study.view import StudyView
from autotune.units import counted, format_bytes, format_seconds, format_share


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A text, and its sort key."""

    text: str
    value: str


@dataclass(frozen=True, kw_only=True)
class ProbeRow:
    """One row of the table: a probe with its cells and details."""

    number: int
    purpose: str
    cells: tuple[Cell, ...]
    outcome: str  # a word or two
    kind: str  # class of its colour
    is_usable: bool
    is_chosen: bool
    reason: str
    details: tuple[tuple[str, str], ...]  # name and text
    log: str  # address relative to the study's folder; empty where there is none


@dataclass(frozen=True, kw_only=True)
class Probes:
    """The table: knobs with the same value in every probe have no column, and are listed once."""

    titles: tuple[str, ...]
    rows: tuple[ProbeRow, ...]
    constant: str  # `layout nchw · threads auto`; empty: nothing but defaults

    @property
    def has_logs(self) -> bool:
        """Whether any probe's log was kept."""
        return any(row.log for row in self.rows)


def table(view: StudyView) -> Probes:
    """Return every probe in its order; knobs that stayed at their default in all probes are left out."""
    knobs = touched(trial.config for trial in view.trials)
    alike = [one for one in knobs if len({shown_value(one, trial.config.values) for trial in view.trials}) == 1]
    constant = [one for one in alike if one.name not in BATCH_KNOBS]
    offered = columns([one for one in knobs if one not in constant])
    *configuration, peak, wait = (*offered[:-4], *offered[-2:])
    chosen = [*offered[-4:-2], *configuration, peak, wait]  # the result first: a narrow screen shows no more
    first = view.trials[0].config.values if view.trials else {}
    return Probes(
        titles=(*(column.title for column in chosen), "took"),
        rows=tuple(_row(view, trial, chosen) for trial in view.trials),
        constant=" · ".join(f"{one.label} {shown_value(one, first)}" for one in constant),
    )


def _row(view: StudyView, trial: Trial, chosen: Sequence[Column]) -> ProbeRow:
    verdict = view.verdict(trial)
    word, purpose = phrases.outcome_word(trial, verdict), phrases.purpose_word(trial.purpose)
    out_of_memory = trial.result.outcome.out_of_memory
    log = disk.log_of(view.folder, trial.number)
    best = view.recommendation
    return ProbeRow(
        number=trial.number,
        purpose=purpose,
        cells=_cells(trial, chosen),
        outcome="ok" if word == purpose else word,  # the column of the purpose says it already
        kind="plain" if verdict.feasible else "memory" if out_of_memory else "bad",
        is_usable=verdict.feasible,
        is_chosen=best is not None and trial.config.values == best.params,
        reason=cropped(phrases.reason(verdict).removeprefix(f"{word}: ")),
        details=_details(trial, prediction_of(view, trial)),
        log=log.relative_to(view.folder).as_posix() if log.is_file() else "",
    )


def _cells(trial: Trial, chosen: Sequence[Column]) -> tuple[Cell, ...]:
    measured, elapsed = trial.result.measurement, trial.result.elapsed_seconds
    texts = [column.cell(trial.config, measured) for column in chosen]
    values = ["–"] * 4
    if measured is not None:
        half_width = measured.relative_half_width
        numbers = (measured.samples_per_second, half_width, measured.memory.bytes, measured.data_wait_share)
        values = ["–" if number is None else f"{number:.6g}" for number in numbers]
    values[2:2] = [""] * (len(texts) - 4)
    took = Cell(text=format_seconds(elapsed) if elapsed else "–", value=f"{elapsed:.1f}" if elapsed else "–")
    return (*(Cell(text=text, value=value) for text, value in zip(texts, values, strict=True)), took)


def _details(trial: Trial, predicted: Prediction | None) -> tuple[tuple[str, str], ...]:
    result, entries = trial.result, list[tuple[str, str]]()
    if predicted is not None:
        expected = expectation(predicted).removeprefix("expected ")
        entries = [("expected", expected), ("came out", deviation(predicted, trial))]
    phases = " · ".join(
        f"{phase} {format_seconds(seconds)}" for phase, seconds in result.phase_seconds.items() if seconds >= 0.05
    )
    entries += [("phases", phases), ("began", result.started_at), ("started", started_phrase(result))]
    measured, failure = result.measurement, result.failure
    if measured is not None:
        alone = (("model", measured.compute_samples_per_second), ("loader", measured.loader_samples_per_second))
        rates = (f"{name} {phrases.samples_per_second(rate)}" for name, rate in alone if rate)
        entries += [
            ("alone", " · ".join(rates)),
            ("window", f"{measured.steps} steps{_how_long(measured)}{_how_it_ended(measured)}"),
            ("watching", phrases.watching(measured)),
            ("waited for a core", _interference(measured.interference)),
            ("page faults", _page_faults(measured)),
        ]
    if result.gpu is not None:
        entries.append(("GPU", _gpu(result.gpu)))
    if failure is not None:
        entries += [
            ("failed in", failure.phase),
            ("at", failure.user_frame),
            ("known by", cropped(phrases.plain(failure.evidence))),
        ]
    return tuple((name, text) for name, text in entries if text)


def started_phrase(result: ProbeResult) -> str:
    """`forked`, or `a fresh process: ` and why; empty if the study is of an earlier version."""
    if result.isolation is None:
        return ""
    way, why = "forked" if result.isolation == "fork" else "a fresh process", phrases.plain(result.isolation_reason)
    return f"{way}: {why}" if why else way


def _page_faults(measured: Measurement) -> str:
    """`3,040 a step, about 21% of it`; empty where they were not counted, or take next to nothing."""
    share = measured.fault_share or 0.0
    return f"{(measured.page_faults or 0) / measured.steps:,.0f} a step, about {format_share(share)} of it" * (
        share >= 0.005
    )


def _interference(found: HostInterference | None) -> str:
    """`20% of the window, others kept 1.5 cores busy`; empty where it was not measured."""
    if found is None or found.run_queue_wait_share is None:
        return ""
    others = "" if found.foreign_cores is None else f", others kept {found.foreign_cores:.1f} cores busy"
    return f"{format_share(found.run_queue_wait_share)} of the window{others}"


def _gpu(use: GpuUse) -> str:
    """`80% busy · 47.1 GiB used · 512 W · SM clock 1700–1980 MHz · slowed by power cap · shared with 2 others`."""
    clocks = "" if use.sm_clock_mhz is None else "–".join(str(clock) for clock in dict.fromkeys(use.sm_clock_mhz))
    parts = (
        "" if use.utilization is None else f"{format_share(use.utilization)} busy",
        "" if use.used_bytes is None else f"{format_bytes(use.used_bytes)} used",
        "" if use.power_watts is None else f"{use.power_watts:.0f} W",
        clocks and f"SM clock {clocks} MHz",
        use.throttle_reasons and f"slowed by {', '.join(use.throttle_reasons)}",
        use.foreign_processes and f"shared with {counted(len(use.foreign_processes), 'other')}",
    )
    return " · ".join(part for part in parts if part)


def _how_long(measured: Measurement) -> str:
    if measured.cycle_ratio == 1:
        return ""
    return f" of {measured.micro_batches_per_step} micro-batches, the rate is that of {measured.accumulation_steps}"


def _how_it_ended(measured: Measurement) -> str:
    if measured.cut_short:
        return ", stopped early: clearly slower than the best so far"
    return ", ended before it was precise" if measured.noisy else ""
