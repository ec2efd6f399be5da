"""A measured surface: the result of one probe for every configuration of a space, in one small JSON file."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path

from msgspec import field
from msgspec.structs import replace

from autotune.core import codec
from autotune.core.records import PROTOCOL_VERSION, Config, Record, StudyRequest
from autotune.core.requests import ProbeBudget
from autotune.core.results import IsolatedTiming, Measurement, ProbeResult
from autotune.knobs import completed, defaults
from autotune.memory.records import ShapeRun
from autotune.objectives.verdict import judge

MOST_ENTRIES = 8  # of a list with one entry per step: neighbours are added up, so that sums and rates stay as they are
DIGITS = 6  # of a clock's seconds: more would be noise


class Cell(Record, frozen=True, kw_only=True):
    """One configuration and what its probe showed."""

    config: Config
    result: ProbeResult


class Surface(Record, frozen=True, kw_only=True):
    """Every configuration of a space, probed once on one machine. `request` names target, machine, limits and space."""

    protocol: int = PROTOCOL_VERSION
    task: str
    command: str  # that records it again
    recorded_at: str  # UTC, ISO 8601
    seconds: float  # of wall time, all probes one after the other: what an exhaustive search costs
    budget: ProbeBudget
    request: StudyRequest
    cells: tuple[Cell, ...]
    # Of the whole space; None: nothing ran out of memory, so it was not worth one. Files have its earlier name.
    shape_run: ShapeRun | None = field(default=None, name="dry_run")

    @property
    def rates(self) -> dict[Config, float | None]:
        """Samples/s by configuration; None where it did not run or needs more memory than may be used."""
        verdicts = ((cell.config, judge(cell.result, self.request)) for cell in self.cells)
        return {config: verdict.value if verdict.feasible else None for config, verdict in verdicts}

    @property
    def best(self) -> tuple[Config, float]:
        """The fastest configuration that may be used, and its samples/s. Raises `ValueError` if there is none."""
        running = {config: rate for config, rate in self.rates.items() if rate is not None}
        config = max(running, key=running.__getitem__)
        return config, running[config]

    @property
    def out_of_memory(self) -> int:
        """How many configurations ran out of memory, or needed more than may be used."""
        return sum(judge(cell.result, self.request).constraints["memory"] > 0 for cell in self.cells)

    @property
    def slowed(self) -> int:
        """How many probes others noticeably slowed."""
        seen = (cell.result.measurement for cell in self.cells)
        return sum(bool(m and m.interference and m.interference.is_noticeable) for m in seen)

    @property
    def probe_seconds(self) -> float:
        """What one probe takes in the mean."""
        return statistics.mean(cell.result.elapsed_seconds for cell in self.cells)


def read(path: Path) -> Surface:
    """A recorded surface, with today's knobs. Raises `StudyError` if it is damaged, `OSError` if it is not there."""
    surface = codec.read(path, Surface)
    request = surface.request
    domains = {name: (value,) for name, value in defaults().items()} | request.domains
    return replace(
        surface,
        request=replace(request, baseline=completed(request.baseline), domains=domains),
        cells=tuple(replace(cell, config=completed(cell.config)) for cell in surface.cells),
    )


def condensed(result: ProbeResult) -> ProbeResult:
    """The same result in a few hundred bytes: neighbouring steps added up, logs left out; every rate is what it was."""
    measured = result.measurement
    if measured is None:
        assert result.failure is not None, "only OK has none"
        brief = replace(result.failure, traceback="", message=result.failure.message[:200])
        return replace(result, failure=brief)
    return replace(result, measurement=_condensed(measured))


def _condensed(measured: Measurement) -> Measurement:
    losses = measured.losses
    head, tail = MOST_ENTRIES // 2, MOST_ENTRIES - MOST_ENTRIES // 2
    return replace(
        measured,
        samples=tuple(int(count) for count in _merged(measured.samples)),
        step_seconds=tuple(round(seconds, DIGITS) for seconds in _merged(measured.step_seconds)),
        loader_wait_seconds=tuple(round(seconds, DIGITS) for seconds in _merged(measured.loader_wait_seconds)),
        tokens=None if measured.tokens is None else tuple(int(count) for count in _merged(measured.tokens)),
        losses=losses if len(losses) <= MOST_ENTRIES else (*losses[:head], *losses[-tail:]),
        warmup_seconds=tuple(round(seconds, DIGITS) for seconds in measured.warmup_seconds[:MOST_ENTRIES]),
        compute_only=_settled(measured.compute_only),
        loader_only=_settled(measured.loader_only),
        memory_track=(),
    )


def _merged(values: Sequence[float]) -> list[float]:
    """At most `MOST_ENTRIES` sums of neighbours, cut at the same places for lists of the same length."""
    count = min(len(values), MOST_ENTRIES)
    cuts = [len(values) * place // count for place in range(count + 1)]
    return [sum(values[begin:end]) for begin, end in itertools.pairwise(cuts)]


def _settled(alone: IsolatedTiming | None) -> IsolatedTiming | None:
    """One entry with the mean of the settled half, which is all that its rate is made of."""
    if alone is None:
        return None
    return replace(alone, seconds=(alone.samples / alone.samples_per_second,)) if min(alone.seconds) > 0 else alone
