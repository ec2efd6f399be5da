"""Two studies side by side: what differs in what was asked and where, and how fast what both measured ran on each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from scipy.special import stdtrit  # Student's quantile

from autotune.knobs import defaults
from autotune.records import Config, Record, StudyRequest
from autotune.report import phrases
from autotune.tuning.recommendation import Recommendation
from autotune.tuning.view import StudyView
from autotune.units import format_bytes

Kind = Literal["machine", "software", "training", "question"]
Z95 = 1.96  # half width over standard error of a normal 95 % interval

# What a difference may come from. Left out: what differs from boot to boot or says nothing of speed (one card's
# identity, seeds, dates, shared memory). Host memory is told in whole GiB, for the kernel's share varies.
ASPECTS: tuple[tuple[str, Kind, Callable[[StudyRequest], object]], ...] = (
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
    ("parameters", "training", lambda asked: f"{asked.facts.parameter_count:,}"),
    ("data", "training", lambda asked: asked.facts.data),
    ("samples in the dataset", "question", lambda asked: _counted(asked.facts.dataset_samples)),
    ("objective", "question", lambda asked: asked.goal.objective),
    ("only what computes the same", "question", lambda asked: "yes" if asked.goal.exact else "no"),
    ("global batch", "question", lambda asked: asked.goal.global_batch or "free"),
    ("memory limit", "question", lambda asked: _gibibytes(asked.memory_limit_bytes)),
    ("baseline", "question", lambda asked: phrases.short(asked.baseline.values)),
    ("loss check", "question", lambda asked: asked.goal.stability),
)


class Difference(Record, frozen=True, kw_only=True):
    """One thing that the two studies do not share; None: not known, or not there."""

    name: str
    kind: Kind
    a: str | None
    b: str | None


class Ratio(Record, frozen=True, kw_only=True):
    """How many times as fast B is as A, with its 95 % interval where there is one."""

    estimate: float
    low: float | None = None
    high: float | None = None


class Shared(Record, frozen=True, kw_only=True):
    """A configuration that both measured and could use."""

    config: Config
    a_samples_per_second: float  # geometric means over its probes
    b_samples_per_second: float
    a_probes: int
    b_probes: int
    ratio: Ratio


class Fate(Record, frozen=True, kw_only=True):
    """A configuration that one study could use and the other could not."""

    config: Config
    a: str
    b: str


class Side(Record, frozen=True, kw_only=True):
    """One of the two studies."""

    study: str
    begun: str  # UTC, ISO 8601
    request: StudyRequest
    probes: int
    recommendation: Recommendation | None


class Comparison(Record, frozen=True, kw_only=True):
    """All that can be said about A and B, and what cannot."""

    a: Side
    b: Side
    differences: tuple[Difference, ...]
    best: Ratio | None  # of the recommended configurations; None: one has none, or they train different things
    overall: Ratio | None  # geometric mean over what both measured, its interval by their scatter
    shared: tuple[Shared, ...]  # fastest on A first
    fates: tuple[Fate, ...]
    a_choice_on_b: float | None  # A's recommendation as measured by B, as a share of B's best; None: not measured
    b_choice_on_a: float | None

    def differs_in(self, kind: Kind) -> tuple[Difference, ...]:
        """The differences of one kind."""
        return tuple(difference for difference in self.differences if difference.kind == kind)


def compare(a: StudyView, b: StudyView) -> Comparison:
    """Lay two studies side by side. Ratios are B over A."""
    rates = (_rates(a), _rates(b))
    shared = _shared(*rates, _window_noise(a, b))
    differences = _differences(a.request, b.request)
    other_training = any(difference.kind == "training" for difference in differences)
    return Comparison(
        a=_side(a),
        b=_side(b),
        differences=differences,
        best=None if other_training else _best(a.recommendation, b.recommendation),
        overall=_overall(shared),
        shared=shared,
        fates=_fates(a, b),
        a_choice_on_b=_transfer(a.recommendation, b.recommendation, rates[1]),
        b_choice_on_a=_transfer(b.recommendation, a.recommendation, rates[0]),
    )


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
        Difference(name=name, kind=kind, a=_told(one), b=_told(other))
        for name, kind, one, other in aspects
        if one != other
    )


def _domain(asked: StudyRequest, knob: str) -> str | None:
    return ", ".join(str(value) for value in asked.domains[knob]) if knob in asked.domains else None


def _told(value: object) -> str | None:
    return None if value in (None, "") else phrases.plain(str(value))


def _counted(count: int | None) -> str | None:
    return None if count is None else f"{count:,}"


def _gibibytes(count: int) -> str:
    return f"{count / 2**30:.0f} GiB" if count >= 4 * 2**30 else format_bytes(count)


def _rates(view: StudyView) -> dict[Config, list[float]]:
    """samples/s of every usable probe, by configuration; a knob that a study does not know has its default."""
    rates: dict[Config, list[float]] = {}
    for trial in view.trials:
        verdict = view.verdict(trial)
        if verdict.feasible and trial.result.measurement is not None:
            rates.setdefault(_complete(trial.config), []).append(trial.result.measurement.samples_per_second)
    return rates


def _complete(config: Config) -> Config:
    return Config(values={**defaults(), **config.values})


def _window_noise(*views: StudyView) -> float:
    """Standard error of one probe's rate by its own window, in the mean: all there is where nothing was repeated."""
    widths = [
        trial.result.measurement.relative_half_width
        for view in views
        for trial in view.trials
        if trial.result.measurement and trial.result.measurement.relative_half_width is not None
    ]
    return sum(widths) / len(widths) / Z95 if widths else math.nan


def _shared(a: dict[Config, list[float]], b: dict[Config, list[float]], window_noise: float) -> tuple[Shared, ...]:
    """The noise of a probe is pooled over all repeats of shared configurations in both studies, in logarithms."""
    both = [config for config in a if config in b]
    repeats = [np.log(rates[config]) for rates in (a, b) for config in both]
    freedom = sum(len(logs) - 1 for logs in repeats)
    squares = sum(float(((logs - logs.mean()) ** 2).sum()) for logs in repeats)
    noise = math.sqrt(squares / freedom) if freedom else window_noise
    quantile = float(stdtrit(freedom, 0.975)) if freedom else Z95
    found = []
    for config in both:
        one, other = np.log(a[config]), np.log(b[config])
        width = quantile * noise * math.sqrt(1 / len(one) + 1 / len(other))
        found.append(
            Shared(
                config=config,
                a_samples_per_second=float(np.exp(one.mean())),
                b_samples_per_second=float(np.exp(other.mean())),
                a_probes=len(one),
                b_probes=len(other),
                ratio=_interval(float(other.mean() - one.mean()), width),
            )
        )
    return tuple(sorted(found, key=lambda one: -one.a_samples_per_second))


def _overall(shared: Sequence[Shared]) -> Ratio | None:
    if not shared:
        return None
    logs = np.log([one.ratio.estimate for one in shared])
    count = len(logs)
    width = float(stdtrit(count - 1, 0.975) * logs.std(ddof=1) / math.sqrt(count)) if count > 1 else math.nan
    return _interval(float(logs.mean()), width)


def _best(a: Recommendation | None, b: Recommendation | None) -> Ratio | None:
    if a is None or b is None:
        return None
    widths = (a.relative_half_width, b.relative_half_width)
    width = math.nan if None in widths else math.hypot(*(value or 0.0 for value in widths))
    return _interval(math.log(b.samples_per_second / a.samples_per_second), width)


def _interval(log: float, width: float) -> Ratio:
    """A ratio from its logarithm and the half width of that; NaN: no interval."""
    if not math.isfinite(width):
        return Ratio(estimate=math.exp(log))
    return Ratio(estimate=math.exp(log), low=math.exp(log - width), high=math.exp(log + width))


def _fates(a: StudyView, b: StudyView) -> tuple[Fate, ...]:
    """By the latest probe of each configuration."""
    ends = [{_complete(trial.config): (view.verdict(trial), trial) for trial in view.trials} for view in (a, b)]
    found = []
    for config in ends[0]:
        if config in ends[1] and ends[0][config][0].feasible != ends[1][config][0].feasible:
            words = [
                "usable" if end[config][0].feasible else phrases.outcome_word(end[config][1], end[config][0])
                for end in ends
            ]
            found.append(Fate(config=config, a=words[0], b=words[1]))
    return tuple(found)


def _transfer(
    chosen: Recommendation | None, best: Recommendation | None, rates: dict[Config, list[float]]
) -> float | None:
    if chosen is None or best is None:
        return None
    measured = rates.get(_complete(Config(values=chosen.params)))
    return float(np.exp(np.log(measured).mean())) / best.samples_per_second if measured else None
