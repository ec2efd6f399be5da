"""Compares two studies: differences in request and machine, and the ratios of speeds that both measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from autotune.answer.reasons import is_unconfirmed
from autotune.core.records import Config, Record, StudyRequest
from autotune.core.rounds import Rounds
from autotune.knobs import completed
from autotune.knobs.declared import declare
from autotune.report import phrases
from autotune.study.recommendation import Recommendation
from autotune.study.shown import moving, shown_config
from autotune.study.summary import ConfigSummary
from autotune.study.view import StudyView, summaries
from autotune.targets.source import are_alike
from autotune.units import format_bytes

DifferenceKind = Literal["machine", "software", "training", "question"]

# Facts that may explain a difference in speed. Left out are facts that change with each boot or do not affect speed (a
# GPU's identity, seeds, dates, shared memory). Host memory is shown in whole GiB, for the kernel's share varies.
ASPECTS: tuple[tuple[str, DifferenceKind, Callable[[StudyRequest], object]], ...] = (
    ("device", "machine", lambda asked: asked.environment.device_name),
    ("memory of the device", "machine", lambda asked: _gibibytes(asked.environment.device_bytes)),
    ("compute capability", "machine", lambda asked: asked.environment.capability),
    ("native autocast dtypes", "machine", lambda asked: ", ".join(sorted(asked.environment.native_dtypes))),
    ("processor", "machine", lambda asked: asked.environment.cpu),
    ("usable cores", "machine", lambda asked: asked.environment.usable_cores),
    ("memory of the host", "machine", lambda asked: _gibibytes(asked.environment.host_bytes)),
    ("driver", "software", lambda asked: asked.environment.driver),
    ("CUDA", "software", lambda asked: asked.environment.cuda),
    ("torch", "software", lambda asked: asked.environment.torch),
    ("Python", "software", lambda asked: asked.environment.python),
    ("platform", "software", lambda asked: asked.environment.platform),
    ("target", "question", lambda asked: asked.target),
    ("model", "training", lambda asked: asked.facts.name),
    ("parameters", "training", lambda asked: asked.facts.parameter_count),
    ("data", "training", lambda asked: asked.facts.data),
    ("samples in the dataset", "question", lambda asked: asked.facts.dataset_samples),
    ("objective", "question", lambda asked: asked.goal.objective),
    ("only what computes the same", "question", lambda asked: "yes" if asked.goal.exact else "no"),
    ("global batch", "question", lambda asked: asked.goal.global_batch or "free"),
    ("memory limit", "question", lambda asked: _gibibytes(asked.memory_limit_bytes)),
    ("baseline", "question", lambda asked: shown_config(asked.baseline.values, moving(asked))),
    ("loss check", "question", lambda asked: asked.goal.stability),
)


class Difference(Record, frozen=True, kw_only=True):
    """One fact in which the two studies differ; None: unknown or absent."""

    name: str
    kind: DifferenceKind
    a: str | None
    b: str | None


class Ratio(Record, frozen=True, kw_only=True):
    """The speed of B over that of A, with its 95 % interval where there is one."""

    estimate: float
    low: float | None = None
    high: float | None = None


class SharedConfig(Record, frozen=True, kw_only=True):
    """A configuration that both studies measured and could use; if both confirmed it, with the confirmed rates."""

    config: Config
    a_samples_per_second: float
    b_samples_per_second: float
    a_is_confirmed: bool  # in rounds; else it is the mean of the search's probes, or a single one
    b_is_confirmed: bool

    @property
    def ratio(self) -> float:
        """The speed of B over that of A."""
        return self.b_samples_per_second / self.a_samples_per_second

    @property
    def is_confirmed(self) -> bool:
        """Whether both rates come from confirmations."""
        return self.a_is_confirmed and self.b_is_confirmed


class Side(Record, frozen=True, kw_only=True):
    """One study of a comparison: its name, start and answer."""

    study: str
    begun: str  # UTC, ISO 8601
    request: StudyRequest
    probes: int
    recommendation: Recommendation | None


class Comparison(Record, frozen=True, kw_only=True):
    """The comparison of studies A and B: shared configurations, and differences."""

    a: Side
    b: Side
    differences: tuple[Difference, ...]
    shared: tuple[SharedConfig, ...]  # fastest on A first; empty if they train different models
    overall: Ratio | None  # over configurations that both confirmed, else over all shared ones

    def differs_in(self, kind: DifferenceKind) -> tuple[Difference, ...]:
        """The differences of one kind."""
        return tuple(difference for difference in self.differences if difference.kind == kind)

    @property
    def compared(self) -> tuple[SharedConfig, ...]:
        """The configurations from which the overall ratio is computed."""
        return _compared(self.shared)


def compare(a: StudyView, b: StudyView) -> Comparison:
    """Return the comparison of two studies. Ratios are B over A. Knobs that either declares are known meanwhile."""
    declare(*a.request.facts.declared, *b.request.facts.declared)
    differences = _differences(a.request, b.request)
    shared = () if any(one.kind == "training" for one in differences) else _shared(a, b)
    overall = _overall(_compared(shared))
    return Comparison(a=_side(a), b=_side(b), differences=differences, shared=shared, overall=overall)


def _side(view: StudyView) -> Side:
    return Side(
        study=view.name,
        begun=view.request.created_at,
        request=view.request,
        probes=len(view.trials),
        recommendation=view.recommendation,
    )


def _differences(a: StudyRequest, b: StudyRequest) -> tuple[Difference, ...]:
    aspects = [(name, kind, read(a), read(b)) for name, kind, read in ASPECTS]
    for knob in sorted({*a.domains, *b.domains}):
        aspects.append((f"values of {knob}", "question", _domain(a, knob), _domain(b, knob)))
    return tuple(
        Difference(name=name, kind=kind, a=_text(one), b=_text(other))
        for name, kind, one, other in aspects
        if one != other and not (name == "target" and are_alike(a.target, b.target))
    )


def _domain(asked: StudyRequest, knob: str) -> str | None:
    return ", ".join(str(value) for value in asked.domains[knob]) if knob in asked.domains else None


def _text(value: object) -> str | None:
    if value in (None, ""):
        return None
    return f"{value:,}" if isinstance(value, int) else phrases.plain(str(value))


def _gibibytes(count: int) -> str:
    return f"{count / 2**30:.0f} GiB" if count >= 4 * 2**30 else format_bytes(count)


def _shared(a: StudyView, b: StudyView) -> tuple[SharedConfig, ...]:
    """Return the shared configurations; a knob that a study does not know has its default there."""
    one, other = ({completed(it.config): it for it in summaries(view) if it.feasible} for view in (a, b))
    found = [
        SharedConfig(
            config=config,
            a_samples_per_second=one[config].samples_per_second,
            b_samples_per_second=other[config].samples_per_second,
            a_is_confirmed=_is_confirmed(one[config]),
            b_is_confirmed=_is_confirmed(other[config]),
        )
        for config in one
        if config in other
    ]
    return tuple(sorted(found, key=lambda it: -it.a_samples_per_second))


def _is_confirmed(one: ConfigSummary) -> bool:
    """Return whether it was measured in rounds: an answer may also rest on single probes."""
    return one.compared is not None and not is_unconfirmed(one)


def _compared(shared: tuple[SharedConfig, ...]) -> tuple[SharedConfig, ...]:
    return tuple(one for one in shared if one.is_confirmed) or shared


def _overall(pairs: Sequence[SharedConfig]) -> Ratio | None:
    """Return the mean ratio by the model of the confirmation, in which each configuration is a common round."""
    if not pairs:
        return None
    rates = [[one.a_samples_per_second for one in pairs], [one.b_samples_per_second for one in pairs]]
    estimate, low, high = Rounds(rates).ratio(1, 0)
    return Ratio(estimate=estimate, low=low, high=high) if len(pairs) > 1 else Ratio(estimate=estimate)
