"""The ablation: what each change from the baseline to the recommendation gained, from measured probes alone."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from autotune.core.records import Config, Value
from autotune.core.results import Trial, Verdict
from autotune.errors import AutotuneError
from autotune.knobs import KNOBS, defaults
from autotune.study import layout as disk
from autotune.study.answers import write_answer
from autotune.study.recommendation import Recommendation
from autotune.study.summary import ConfigSummary
from autotune.study.view import StudyView, summaries, view_of
from autotune.tuning.choice import TIE
from autotune.tuning.context import SearchContext
from autotune.tuning.probing import probe_with_repeat
from autotune.units import counted, format_rate

HELD_TOGETHER = ("batch_size", "gradient_accumulation_steps")  # one change: their product is what is held


def ablate(context: SearchContext, answer: Recommendation) -> Recommendation:
    """Probe what is missing between the baseline and the recommendation, with what is left of the time budget.

    The answer is already kept, so nothing here may cost it: an interrupt ends the probing and not the search, and so
    does a fault of the machine. A step may lead over what could not win: only the guard is asked.
    """
    view, budget = view_of(context.history, context.folder, answer), context.budget
    wanted = [config for config in missing(view) if context.guard.admits(config)]
    if not context.objective.is_speed or not wanted or not budget.affords_ablation:
        return answer
    context.reporter.note(
        f"The recommendation is kept. Measuring the gain of each change: at most {counted(len(wanted), 'more probe')}; "
        f"Ctrl-C skips this."
    )
    try:
        for config in wanted:
            if not budget.affords_ablation:
                break
            trial, verdict = probe_with_repeat(
                context, config, "ablation", has_time=lambda: budget.left_seconds >= context.history.typical_seconds
            )
            context.store.add(trial, verdict)
            surprise = _surprise(trial, verdict, answer)
            if surprise:
                context.reporter.note(surprise)
    except KeyboardInterrupt:
        context.reporter.note("Interrupted: the recommendation stands; gains that were not measured are left out.")
    except AutotuneError as error:
        context.reporter.note(f"The recommendation stands, but the gain of some changes could not be measured. {error}")
    answer = replace(answer, probes=len(context.history.judged), seconds=round(budget.elapsed_seconds, 1))
    write_answer(context.folder / disk.BEST, answer)
    return answer


@dataclass(frozen=True, kw_only=True)
class AblationStep:
    """A step from one measured configuration to the next on the way to the recommendation."""

    changed: tuple[str, ...]  # names of the knobs that differ from the step before; none: the baseline itself
    summary: ConfigSummary

    @property
    def changes(self) -> int:
        """The number of changes at once; above 1, the gain of each alone was not measured."""
        return len(_grouped(self.changed))


def steps(view: StudyView) -> tuple[AblationStep, ...]:
    """Return the baseline, then the longest chain of measured configurations that ends at the recommendation.

    Each lies between its neighbours: every knob has the baseline's value or, once changed, the recommended one. Of
    chains of one length the one whose parts were probed most is taken. Empty without a recommendation, if the
    baseline cannot run, or if both are the same.
    """
    ends = _ends(view)
    if ends is None:
        return ()
    start, goal = ends
    measured = {one.config: one for one in summaries(view)}
    if start not in measured or goal not in measured:
        return ()
    between = [one for one in measured.values() if one.feasible and _lies_between(one.config, start, goal)]
    way = sorted((one.config for one in between if one.config != start), key=lambda one: len(_changed(start, one)))
    chains: dict[Config, tuple[int, int, tuple[Config, ...]]] = {start: (0, 0, (start,))}
    for config in (*way, goal):
        before = [chains[one] for one in chains if _lies_between(one, start, config)]
        length, probes, chain = max(before, key=lambda entry: entry[:2])
        chains[config] = (length + 1, probes + len(measured[config].measured), (*chain, config))
    chain = chains[goal][2]
    pairs = zip((start, *chain), chain, strict=False)
    return tuple(AblationStep(changed=_changed(one, other), summary=measured[other]) for one, other in pairs)


def missing(view: StudyView) -> tuple[Config, ...]:
    """Return the configurations that are still to be probed so that every step is a single change, in order.

    The batch changes last: a configuration that is larger and not yet leaner is the likeliest to exhaust memory. What
    was probed and is no step could not be used, and is left out.
    """
    probed = {trial.config for trial in view.trials}
    way = steps(view)
    wanted: list[Config] = []
    for before, after in itertools.pairwise(way):
        values: dict[str, Value] = dict(before.summary.config.values)
        groups = _grouped(after.changed)
        for group in [*(g for g in groups if g != HELD_TOGETHER), *(g for g in groups if g == HELD_TOGETHER)][:-1]:
            values |= {name: after.summary.config.values.get(name, defaults()[name]) for name in group}
            wanted.append(Config(values=dict(values)))
    return tuple(config for config in wanted if config not in probed)


def _ends(view: StudyView) -> tuple[Config, Config] | None:
    best = view.recommendation
    if best is None or best.params == best.baseline:
        return None
    # As they were probed: best.json names every knob of the version that wrote it, and so does each probe.
    return Config(values=dict(best.baseline)), Config(values=dict(best.params))


def changes_between(one: Mapping[str, Value], other: Mapping[str, Value]) -> list[tuple[str, ...]]:
    """Return the changes from one configuration to the other, each the names of the knobs that move together."""
    return _grouped(_changed(Config(values=dict(one)), Config(values=dict(other))))


def _changed(one: Config, other: Config) -> tuple[str, ...]:
    return tuple(knob.name for knob in KNOBS if _value(one.values, knob.name) != _value(other.values, knob.name))


def _lies_between(config: Config, start: Config, goal: Config) -> bool:
    """Whether it is short of the goal, and each change that it makes is wholly the goal's."""
    changed = _changed(start, config)
    return set(changed) < set(_changed(start, goal)) and all(
        _value(config.values, name) == _value(goal.values, name) for group in _grouped(changed) for name in group
    )


def _grouped(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the changes that those knobs make, in the order of the registry."""
    held = [HELD_TOGETHER] if set(names) & set(HELD_TOGETHER) else []
    return [*held, *((knob.name,) for knob in KNOBS if knob.name in names and knob.name not in HELD_TOGETHER)]


def _value(values: Mapping[str, Value], name: str) -> Value:
    return values.get(name, defaults()[name])


def _surprise(trial: Trial, verdict: Verdict, best: Recommendation) -> str:
    """Say that a step seems faster than the recommendation: the search overlooked it, and it is not confirmed."""
    measured = trial.result.measurement
    rate = 0.0 if measured is None else measured.samples_per_second
    if not verdict.feasible or rate <= best.samples_per_second * (1 + TIE):
        return ""
    return (
        f"Probe {trial.number} ran at {format_rate(rate)} samples/s, measured once: it may be faster than the "
        f"recommendation. Run the same command again to confirm it."
    )
