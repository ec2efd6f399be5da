"""A profile as one self-contained HTML page, in the style of a study's report; what comes from users is escaped."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.knobs import KNOBS
from autotune.profile import chart
from autotune.profile.advice import instead, seen, tried
from autotune.profile.judge import (
    LEAST_SLOW_LINE_SHARE,
    at_most,
    expensive_lines,
    expensive_modules,
    late_rank,
    share_of_parts,
    step_bottleneck,
)
from autotune.profile.memory_judge import rows
from autotune.profile.memory_table import memory_sentences
from autotune.profile.profile import Profile
from autotune.profile.records import NO_LINE, PARTS, ProfileResult, SlowLine
from autotune.profile.storage_judge import storage_sentence
from autotune.profile.table import LEAST_PART_SHARE, bound_phrase, doubts, work_phrase
from autotune.report.chart import Chart
from autotune.report.templates import render_template
from autotune.units import format_bytes, format_ms, format_rate, format_share

MOST_LISTED_MODULES = 12  # that are listed


@dataclass(frozen=True, kw_only=True)
class Told:
    """One slow line, as the page shows it."""

    place: str
    cost: str
    share: float | None  # of a step; None: it costs memory
    seen: str
    code: str
    instead: str
    tried: str  # empty: that was not asked for


def render(found: Profile) -> str:
    """Return the page of one profile."""
    result = found.result
    strip, memory = chart.strip(result), memory_chart(found)
    return render_template(
        "profile.html",
        label=found.label,
        machine=found.machine,
        device=found.device,
        values=[text for one in KNOBS if (text := one.phrase(found.config.values.get(one.name, one.default)))],
        result=result,
        bottleneck=step_bottleneck(result),
        late=late_rank(result),
        strip=strip,
        wide_strip=chart.wide(strip),
        memory=memory,
        wide_memory=memory and chart.wide(memory),
        memory_told=memory_sentences(result),
        parts=_parts(result),
        modules=_modules(result),
        work=work_phrase(result.work, result.seconds) if result.work else "",
        bound=bound_phrase(result),
        slow_lines=[_told(one, result) for one in expensive_lines(result)],
        least=format_share(LEAST_SLOW_LINE_SHARE),
        doubts=doubts(result),
        storage="" if result.storage is None else storage_sentence(result.storage),
    )


def memory_chart(found: Profile) -> Chart | None:
    """Return the picture of memory by category; None where the profile did not look at it."""
    if (use := found.result.memory) is None:
        return None
    return chart.memory(rows(use), found.memory_limit_bytes)


def _told(one: SlowLine, result: ProfileResult) -> Told:
    """Return one slow line as text; `share` is None for growing memory."""
    of_step = one.seconds / result.seconds
    cost = (
        f"{format_bytes(one.bytes)} a step"
        if one.bytes
        else f"{format_rate(1000 * one.seconds)} ms a step ({format_share(of_step)})"
    )
    return Told(
        place=one.place or NO_LINE, cost=cost, share=None if one.bytes else of_step, seen=seen(one),
        code=one.code, instead=instead(one), tried=tried(one),
    )  # fmt: skip


def _parts(result: ProfileResult) -> list[tuple[str, str, str, str]]:
    return [
        (one.part, format_ms(one.seconds), format_share(of_step), f"{at_most(of_step):.2f}×")
        for one in sorted(result.parts, key=lambda one: PARTS.index(one.part))
        if (of_step := share_of_parts(result, one.part)) >= LEAST_PART_SHARE
    ]


def _modules(result: ProfileResult) -> list[tuple[str, str, str, str, str]]:
    rows = expensive_modules(result.modules) if result.modules else []
    total = sum(one.forward + one.backward for one in rows) or 1.0
    return [
        (
            one.name,
            one.kind,
            format_ms(one.forward),
            format_ms(one.backward),
            format_share((one.forward + one.backward) / total),
        )
        for one in rows[:MOST_LISTED_MODULES]
    ]
