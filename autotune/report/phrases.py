"""The words and sentences for results, the same on the terminal and on the page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from autotune.core.codes import Code
from autotune.core.records import Config, Environment, Value
from autotune.core.results import Measurement, Outcome, Trial, Verdict
from autotune.core.stats import MOST_PROBE_NOISE, typical_rate
from autotune.harmless import plain as plain  # the name used everywhere in report
from autotune.harmless import shell_word
from autotune.knobs import KNOBS, environ, touched
from autotune.knobs.base import Knob
from autotune.knobs.changes import BATCH_KNOBS
from autotune.objectives import objective_of
from autotune.objectives.verdict import word_of
from autotune.study.answers import is_uncompared, rate_half_width
from autotune.study.answers import rounds_run as rounds_run
from autotune.study.recommendation import Recommendation, RunnerUp, baseline_name
from autotune.study.shown import shown_config, shown_value
from autotune.units import format_bytes, format_rate, format_share, range_phrase
from autotune.units import format_speedup as format_speedup

PURPOSES = {
    "reference": "baseline again",
    "confirm": "confirmation",
    "elsewhere": "second machine",
}  # all others have their own name
GOOD_ENDS = {"search": "ok", "confirm": "confirmed"}  # by purpose; all others end with their own name
FEW_OTHERS = 3  # other configurations: fewer are not representative
MOST_OWN_SHARE = 0.01  # of a step, which watching may take without a remark
PAIRED = "Compared in the rounds that both ran; samples/s are those of each one's own rounds."  # the factor is of pairs
TRADE_MARK = re.compile(r"\((?:R|TM)\)", re.IGNORECASE)


def purpose_word(name: str) -> str:
    """Return the word for probes of this purpose."""
    return PURPOSES.get(name, plain(name))


def times(count: int) -> str:
    """Return a count in words: `once`, `twice`, `3 times`."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def watching(measured: Measurement) -> str:
    """Return a sentence on the share of a step that watching took, if over 1%; else empty."""
    share = (measured.watching_seconds_per_step or 0.0) * measured.steps / sum(measured.step_seconds)
    return f"took {share:.1%} of a step, which training does not pay" if share > MOST_OWN_SHARE else ""


def phrases_of(values: Mapping[str, Value], knobs: Sequence[Knob] = KNOBS) -> tuple[str, ...]:
    """Return the knobs except the batch, each in words; a knob at a value that needs no word is left out."""
    phrases = []
    for knob in knobs:
        if knob.name in BATCH_KNOBS:
            continue
        try:
            knob.check(values.get(knob.name, knob.default))
            phrases.append(knob.phrase(values.get(knob.name, knob.default)))
        except ValueError:
            phrases.append(f"{knob.name} {shown_value(knob, values)}")
    return tuple(phrase for phrase in phrases if phrase)


def runners_up(recommendation: Recommendation) -> list[tuple[str, float | None, RunnerUp]]:
    """Return those not chosen, named by the knobs in which any differs from the default, and samples/s as measured."""
    ends = (recommendation.params, recommendation.baseline)
    lost = recommendation.runners_up
    knobs = touched([*(Config(values=values) for values in ends), *(one.config for one in lost)])
    own = {one.config: typical_rate(one.rounds) for one in recommendation.confirmations}
    return [(shown_config(up.config.values, knobs), own.get(up.config) or up.samples_per_second, up) for up in lost]


def exports(values: Mapping[str, Value]) -> tuple[str, ...]:
    """Return the shell lines that the values need before Python starts: `export OMP_WAIT_POLICY=passive`."""
    return tuple(f"export {name}={shell_word(text)}" for name, text in environ(values).items())


def samples_per_second(rate: float) -> str:
    """Return a rate with its unit: `2,610 samples/s`."""
    return f"{format_rate(rate)} samples/s"


def configuration_phrase(values: Mapping[str, Value], knobs: Sequence[Knob] = KNOBS) -> str:
    """Return the configuration in words: `batch 64 × 1, amp bfloat16, no loader workers`; `knobs` follow the batch."""
    batch = " × ".join(str(values.get(name)) for name in BATCH_KNOBS)
    return ", ".join([f"batch {batch}", *phrases_of(values, knobs)])


def factor_phrase(factor: float, low: float | None, high: float | None) -> str:
    """`17.1× (16.7 to 17.5)`; without an interval the factor alone."""
    ends = range_phrase(low, high)
    return f"{format_speedup(factor)}×" + (f" ({ends})" if ends else "")


def interval(recommendation: Recommendation) -> str:
    """`16.7 to 17.5`, or an empty string where too few rounds were run for one."""
    return range_phrase(recommendation.speedup_low, recommendation.speedup_high)


def speedup_phrase(recommendation: Recommendation) -> str:
    """`17.1× (16.7 to 17.5)`; `–` where the baseline could not run."""
    if recommendation.speedup is None:
        return "–"
    return factor_phrase(recommendation.speedup, recommendation.speedup_low, recommendation.speedup_high)


def is_faster(recommendation: Recommendation) -> bool:
    """Return whether the answer is decided and its speed-up, by the lower end if it has an interval, above 1."""
    least = recommendation.speedup_low if interval(recommendation) else recommendation.speedup
    return recommendation.undecided is None and least is not None and least > 1


def is_slower(recommendation: Recommendation) -> bool:
    """Return whether its speed-up is below 1: by the upper end, or without one by more than two probes may differ."""
    most, speedup = recommendation.speedup_high, recommendation.speedup
    return most < 1 if most is not None else speedup is not None and speedup < 1 - MOST_PROBE_NOISE


def achieved(recommendation: Recommendation) -> str:
    """Return the measured gain, if that is not speed: `67% less memory than your baseline (...)`; else empty."""
    headline = recommendation.achieved.headline if recommendation.achieved is not None else None
    return headline.text if headline is not None else ""


def is_better(recommendation: Recommendation) -> bool:
    """Return whether the recommendation beats the baseline, by the search's objective."""
    return bool(achieved(recommendation)) or is_faster(_by_score(recommendation))


def undecided_phrase(recommendation: Recommendation) -> str:
    """`undecided between your baseline and 64×1 bf16, measured 1.08× as fast (0.95 to 1.22)`; empty if decided."""
    rival = recommendation.undecided
    if rival is None:
        return ""
    ends = (recommendation.baseline, recommendation.params)
    knobs = touched([*(Config(values=values) for values in ends), rival.config])
    factor, ends_of_gain = f"{format_speedup(rival.gain)}×", range_phrase(rival.gain_low, rival.gain_high)
    objective = objective_of(recommendation.goal)
    good = "as fast" if objective.is_speed else f"the {objective.unit}"
    ran = rounds_run(recommendation)
    single = " in single probes" if ran == 1 else f" in 1 of {ran} rounds"
    known = single if rival.rounds == 1 else f" ({ends_of_gain})" if ends_of_gain else ""
    spread = f"{factor} {good}{known}"
    what = shown_config(rival.config.values, knobs)
    where = " while other work slowed the baseline" if rival.beside_others else ""
    baseline = baseline_name(assumed=recommendation.baseline_assumed)
    return f"undecided between {baseline} and {what}, measured {spread}{where}"


def what_would_tell(recommendation: Recommendation) -> str:
    """Return how an open answer can be decided: by a longer time budget, or on a quiet machine."""
    rival, known, study = recommendation.undecided, recommendation.certificate, shell_word(recommendation.study)
    if any(one.code is Code.CODE_CHANGED for one in recommendation.warnings):  # probes of other code decide nothing
        return "Run the same command again with --fresh, with a longer --time-budget or when the machine is quiet."
    if rival is None and known is not None and (known.figure("hung") or known.figure("crashed")):
        return f"Find out why the others do not run. `autotune explain {study} --measure` tries their settings again."
    if rival is None and known is not None and known.figure("failed") >= max(1, known.figure("measured") - 1):
        return (
            f"Find out why no other ran: `autotune show {study} --failed` lists how each ended. Mend that and search "
            f"again with --fresh, or hold what they need with --fix."
        )
    if rival is None or rival.rounds_needed is None:  # or no rival was compared
        return "Run the same command again when the machine is quiet, with a longer --time-budget. Probes are kept."
    return (
        f"About {rival.rounds_needed} rounds instead of {rival.rounds} would decide: run the same command again with "
        f"--time-budget {rival.minutes_needed}m, or when the machine is quiet. Probes are kept."
    )


def headline(recommendation: Recommendation) -> str:
    """Return the result in one line: `17.1× faster than your baseline (16.7 to 17.5)`."""
    name = baseline_name(assumed=recommendation.baseline_assumed)
    objective, open_question = objective_of(recommendation.goal), undecided_phrase(recommendation)
    if open_question and recommendation.params == recommendation.baseline:
        return f"{open_question}: {name} is kept"
    if recommendation.undecided is not None:
        low = recommendation.undecided.gain_low
        worst = "" if low is None else f": at worst it is {format_share(max(0.0, 1 - low))} {objective.worse}"
        return f"{open_question}; it is recommended{worst}"
    if recommendation.params == recommendation.baseline:
        if is_uncompared(recommendation):
            return f"undecided: nothing else could be compared with {name}, which is kept"
        if not recommendation.runners_up:
            return f"keep {name}: nothing else could be compared with it"
        if any(one.reason.code is Code.NOT_MEASURED_AGAIN for one in recommendation.runners_up):  # earlier versions
            return f"keep {name} for now: there was no time to confirm another one (use a longer --time-budget)"
        if few := _few_that_ran(recommendation):
            return f"keep {name} for now: {few}, and no configuration was {objective.unbeaten}"
        return f"keep {name}: no configuration was {objective.unbeaten}"
    if recommendation.speedup is None:
        return f"{objective.best} configuration found; {name} does not run here, so there is no speed-up"
    if achieved(recommendation):
        return achieved(recommendation)
    scored = _by_score(recommendation)
    factor, spread = f"{format_speedup(scored.speedup or 0.0)}×", interval(scored)
    if is_faster(scored):
        return f"{factor} {objective.better} than {name}{f' ({spread})' if spread else ''}"
    seen = f"{factor}{f', {spread}' if spread else ''}"
    compared = objective.worse if is_slower(scored) else f"not measurably {objective.better}"  # among what limits leave
    return f"{objective.best} allowed configuration, {compared} than {name} ({seen})"


def _by_score(recommendation: Recommendation) -> Recommendation:
    """Return the recommendation with the gain of its score as its speed-up, if its objective is not speed."""
    known = recommendation.achieved
    if known is None or known.gain is None or objective_of(recommendation.goal).is_speed:
        return recommendation
    return replace(recommendation, speedup=known.gain, speedup_low=known.gain_low, speedup_high=known.gain_high)


def _few_that_ran(recommendation: Recommendation) -> str:
    """`only 1 of 344 other configurations ran`, if too few did to be representative; else empty."""
    known = recommendation.certificate
    if known is None or known.code is not Code.SAMPLED:
        return ""
    others, total = (int(known.figure(name)) - 1 for name in ("measured", "total"))
    ran = others - int(known.figure("failed"))
    return f"only {ran} of {total:,} other configurations ran" if ran < FEW_OTHERS else ""


def split_headline(recommendation: Recommendation) -> tuple[str, str]:
    """Return the factor for large type, if there is one that rounds have confirmed, and the rest of the headline."""
    text = headline(recommendation)
    if not is_better(recommendation) or recommendation.speedup is None or recommendation.rounds < 2:
        return "", text
    figure, _, rest = text.partition(" ")  # 67%, 1.31×
    return (figure, rest) if figure[-1:] in "×%" else ("", text)


def rate_phrase(recommendation: Recommendation) -> str:
    """`2,605 samples/s`, with tokens if the target has them."""
    rate = samples_per_second(recommendation.samples_per_second)
    if recommendation.tokens_per_second is None:
        return rate
    return f"{rate} ({format_rate(recommendation.tokens_per_second)} tokens/s)"


def speed_parts(recommendation: Recommendation) -> list[str]:
    """Return `2,605 samples/s ± 1%`, `baseline 152` where that is another configuration, and `measured 3 times`."""
    width, baseline = rate_half_width(recommendation), recommendation.baseline_samples_per_second
    is_change = recommendation.params != recommendation.baseline
    rounds = recommendation.rounds  # 1 means a single probe: the search may have measured it more often
    ran = rounds_run(recommendation)
    return [
        rate_phrase(recommendation) + ("" if width is None else f" ± {half_width(width)}"),
        *([f"baseline {format_rate(baseline)}"] if is_change and baseline is not None else []),
        f"measured in {rounds} of {ran} rounds"
        if ran > rounds
        else ("by a single probe" if rounds == 1 else f"measured {times(rounds)}"),
    ]


def memory_phrase(recommendation: Recommendation) -> str:
    """`48.3 GiB of 139 GiB (65% free)`."""
    peak, limit = format_bytes(recommendation.peak_bytes), format_bytes(recommendation.memory_limit_bytes)
    return f"{peak} of {limit} ({format_share(max(0.0, recommendation.headroom_fraction))} free)"


def outcome_word(trial: Trial, verdict: Verdict, best_so_far: bool = False) -> str:
    """Return in one or two words how a probe ended."""
    if trial.result.outcome is not Outcome.OK:
        return word_of(trial.result)
    if not verdict.feasible:
        return "not usable"
    if best_so_far and trial.purpose != "baseline":
        return "best so far"
    if trial.result.measurement is not None and trial.result.measurement.cut_short:
        return "stopped early"
    return GOOD_ENDS.get(trial.purpose, purpose_word(trial.purpose))


def reason(verdict: Verdict) -> str:
    """Return why a probe is not usable, on one line; empty if it is."""
    return plain(verdict.why)


def device(environment: Environment) -> str:
    """`Intel Xeon Processor`: the device's name without its trade marks."""
    return " ".join(plain(TRADE_MARK.sub(" ", environment.device_name)).split())


def environment_line(environment: Environment) -> str:
    """Device, memory, versions: `NVIDIA H200 · 139.8 GiB · driver 580.82 · torch 2.13.0+cu130`."""
    parts = [device(environment), format_bytes(environment.device_bytes)]
    if environment.device_kind == "cpu":
        parts.append(f"{environment.usable_cores} usable cores")
    if environment.driver:
        parts.append(f"driver {environment.driver}")
    return plain(" · ".join([*parts, f"torch {environment.torch}"]))


def half_width(relative: float | None) -> str:
    """`1%`, the half width of a 95 % interval; `–` if it is not known."""
    return "–" if relative is None else format_share(relative)
