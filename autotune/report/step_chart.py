"""The chart of one optimizer step, of today and as recommended: time of computing and of waiting for data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.report import drawing
from autotune.report.bottleneck import bottleneck, rates_of
from autotune.report.chart import Absence, Chart, Table
from autotune.report.drawing import Size
from autotune.study.shown import shown_config
from autotune.study.summary import ConfigSummary
from autotune.study.view import StudyView, summaries
from autotune.units import format_durations, format_rate, format_share

NAME, TITLE = "step", "One optimizer step"
PARTS = (("computing", "computing"), ("waiting", "waiting for data"))  # class and name
BAR, ROW, KEY = 22, 50, 24  # pixels of a bar, of a bar with its name, of the key above


@dataclass(frozen=True, kw_only=True)
class TimedStep:
    """The time of the same number of samples in one configuration."""

    name: str
    summary: ConfigSummary
    wait_share: float  # of a step
    seconds: float


def step(view: StudyView) -> Chart | Absence:
    """Draw a bar for today and one for the answer, or, before there is one, for the fastest so far."""
    if not view.request.facts.tunes_loader:
        why = "there is no DataLoader to time" if view.request.facts.owns_loop else "the batches are synthetic"
        return Absence(name=NAME, title=TITLE, reason=why)
    samples, steps = _steps(view)
    if not steps:
        return Absence(name=NAME, title=TITLE, reason="no probe was measured")

    def draw(size: Size) -> list[str]:
        return _bars(steps, size)

    rows = tuple(
        (
            one.name,
            shown_config(one.summary.config.values, view.knobs),
            format_durations(one.seconds),
            format_share(one.wait_share),
            *_alone(one.summary),
        )
        for one in steps
    )
    takeaway = bottleneck(steps[-1].summary, steps[-1].wait_share)
    return Chart(
        name=NAME,
        title=f"{TITLE} of {samples:,} samples",
        takeaway=takeaway,
        summary=f"{takeaway}. " + "; ".join(f"{name}: {time}, waiting {wait}" for name, _, time, wait, *_ in rows),
        table=Table(
            titles=("", "configuration", "time", "waiting for data", "computing alone, samples/s", "loading alone"),
            rows=rows,
        ),
        draw=draw,
        height=KEY + len(steps) * ROW,
    )


def _steps(view: StudyView) -> tuple[int, list[TimedStep]]:
    """Return the samples of the answer's step, and their time in each configuration, the answer's last."""
    best, found = view.recommendation, summaries(view)
    own = best.params if best else None
    usable = [one for one in found if one.feasible]
    now = next((one for one in found if one.config.values == own), None)
    if best is None and usable:
        now = max(usable, key=lambda one: one.samples_per_second)
    before = next((one for one in found if one.config == view.request.baseline), None)
    samples = best.global_batch_size if best else view.request.global_batch_size(view.request.baseline)
    steps = []
    if before is not None and before is not now:
        rate = (best.baseline_samples_per_second if best else None) or before.samples_per_second
        steps.append(_step("today", before, rate, before.data_wait_share, samples))
    if now is not None:
        rate = best.samples_per_second if best else now.samples_per_second
        wait = best.data_wait_share if best else now.data_wait_share
        name = "fastest so far" if best is None else "recommended" if steps else "today and recommended"
        steps.append(_step(name, now, rate, wait, samples))
    return samples, steps


def _step(name: str, summary: ConfigSummary, rate: float, wait: float, samples: int) -> TimedStep:
    return TimedStep(name=name, summary=summary, wait_share=wait, seconds=samples / rate)


def _alone(one: ConfigSummary) -> tuple[str, str]:
    """Return the rates of each part alone; a lower one than both have together is an error of its short window."""
    rates = rates_of(one)
    return tuple(  # type: ignore[return-value]  # two
        "–"
        if rate is None
        else f"at least {format_rate(rates.together)}"
        if rate < rates.together
        else format_rate(rate)
        for rate in (rates.computing, rates.loading)
    )


def _bars(steps: Sequence[TimedStep], size: Size) -> list[str]:
    parts, x = [], 4.0
    for kind, name in PARTS:
        parts += [drawing.bar(kind, x, 4, 11, 11), drawing.text(x + 17, 14, name, "tick")]
        x += drawing.width_of(name) + 40
    room = size.width - 8 - 1.1 * max(drawing.width_of(format_durations(one.seconds)) for one in steps) - 12
    longest = max(one.seconds for one in steps)
    for index, one in enumerate(steps):
        y = KEY + index * ROW
        wide = one.seconds / longest * room
        computing = wide * (1 - one.wait_share)
        time = format_durations(one.seconds)
        parts.append(drawing.text(4, y + 15, one.name, "strong"))
        bars = drawing.bar("computing", 4, y + 22, computing, BAR) + drawing.bar(
            "waiting", 4 + computing, y + 22, wide - computing, BAR
        )
        tip = f"{one.name}: {time}, {format_share(one.wait_share)} of it waiting for data"
        parts.append(drawing.with_tooltip(bars, tip))
        parts.append(drawing.text(4 + wide + 8, y + 22 + BAR - 6, time, "strong"))
    return parts
