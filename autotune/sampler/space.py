"""The search space: a finite ordered domain per knob, and all their combinations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import product

from msgspec.structs import replace

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Config, Environment, Goal, Limit, TargetFacts, Value
from autotune.errors import UsageError
from autotune.knobs import KNOBS
from autotune.knobs.base import Circumstances, Knob, allowed
from autotune.knobs.changes import BATCH_KNOBS, changes_between
from autotune.knobs.parsing import option
from autotune.sampler.configurations import Configurations, Values, Watched, split
from autotune.sampler.space_errors import available, limit_phrase, no_value, nothing_left, unsettable

MOST_LISTED_CONFIGS = 12_288  # configurations, all of which are looked at: a proposal then takes about 0.1 s
MOST_SAMPLED_CONFIGS = 4_096  # of a larger space, drawn at random; configurations near the probed ones are added


class SearchSpace:
    """All configurations that may be probed, in a fixed order."""

    def __init__(
        self,
        domains: Mapping[str, tuple[Value, ...]],
        circumstances: Circumstances,
        limits: Mapping[str, Limit] | None = None,
    ) -> None:
        """`domains` holds the values of every knob; those of derived knobs are recomputed from the others.

        `limits` of user and target apply to derived values too: a configuration that breaks one is left out.
        """
        self.domains = dict(domains)
        self.circumstances = circumstances
        self._limits = dict(limits or {})
        self._first = {knob.name: domains[knob.name][0] for knob in KNOBS}
        self._derived = {knob.name for knob in KNOBS if knob.derive(self._first, circumstances) is not None}
        self._neighbours: dict[Config, tuple[Config, ...]] = {}
        names = [knob.name for knob in KNOBS]
        self.configs = Configurations(split(names, self._points), names)
        for name in self.domains if self.configs else ():
            self.domains[name] = self._left(name)

    def _left(self, name: str) -> Values:
        """Return the values of a knob that some configuration has, in search order; those without effect are folded."""
        found = self.configs.values(name)
        if name in BATCH_KNOBS:
            return tuple(sorted(found, key=lambda v: int(v or 0))) if name in self._derived else self.domains[name]
        order = [*self.domains[name], *(value for value in found if value not in self.domains[name])]
        return tuple(value for value in order if value in found)

    @property
    def free(self) -> dict[str, tuple[Value, ...]]:
        """The domains, by knob, of knobs that are not derived and have more than one value."""
        return {name: values for name, values in self.domains.items() if len(values) > 1 and name not in self._derived}

    def complete(self, values: Mapping[str, Value]) -> Config:
        """Return the configuration with these values of free knobs, in canonical form."""
        filled = {knob.name: values.get(knob.name, self.domains[knob.name][0]) for knob in KNOBS}
        return self.canonical(Config(values={knob.name: self._value(knob, filled) for knob in KNOBS}))

    def canonical(self, config: Config) -> Config:
        """Return the one configuration that stands for all that train exactly as `config` does here."""
        return canonical(config, self.circumstances)

    def excludes(self, config: Config) -> Notice | None:
        """Return why this canonical configuration may not be recommended: `its global batch is 64, and 256 is held`.

        None if it may. The user's own limits can exclude the baseline.
        """
        if config in self.configs:
            return None
        held, samples = self.circumstances.global_batch, config.global_batch_size()
        if held is not None and held != samples:
            ranks = self.circumstances.facts.ranks
            return notice(Code.OTHER_GLOBAL_BATCH, batch=samples * ranks, held=held * ranks)
        for knob in KNOBS:
            values = self.configs.values(knob.name)
            if config[knob.name] not in values:
                shown, searched = knob.show(config[knob.name]), tuple(map(knob.show, values))
                return notice(Code.VALUE_NOT_SEARCHED, knob=knob.name, value=shown, searched=searched)
        return notice(Code.COMBINATION_LEFT_OUT)

    def nearest(self, config: Config) -> Config:
        """Return the configuration closest to this one: by knobs that differ, then global batch, then positions."""

        def distance(names: Sequence[str], point: Values) -> tuple[float, ...]:
            other = replace(config, values=config.values | dict(zip(names, point, strict=True)))
            ordered = [knob for knob in KNOBS if knob.ordered]
            others = (knob.position(other[knob.name], self.circumstances) for knob in ordered)
            own = (knob.position(config[knob.name], self.circumstances) for knob in ordered)
            return (
                change_count(other, config),
                abs(math.log(other.global_batch_size() / config.global_batch_size())),
                sum(abs(one - another) for one, another in zip(others, own, strict=True)),
            )

        # Every term is a sum over blocks, so that the nearest points make up the nearest configuration.
        return self.configs.at([
            min(range(len(block.points)), key=lambda place: distance(block.names, block.points[place]))
            for block in self.configs.blocks
        ])  # fmt: skip

    @cached_property
    def _sample(self) -> tuple[Config, ...]:
        return tuple(map(self.configs.at, self.configs.sample(MOST_LISTED_CONFIGS, MOST_SAMPLED_CONFIGS).tolist()))

    @property
    def is_listed(self) -> bool:
        """Whether the configurations are few enough to look at each of them."""
        return len(self.configs) <= MOST_LISTED_CONFIGS

    def around(self, configs: Iterable[Config] = ()) -> tuple[Config, ...]:
        """Return all configurations; of a very large space a fixed sample, and those one change from `configs`."""
        if self.is_listed:
            return self._sample
        near = [config for one in configs for config in self._near(one)]
        return tuple(dict.fromkeys((*self._sample, *near)))

    def _near(self, config: Config) -> tuple[Config, ...]:
        if config not in self._neighbours:
            point = self.configs.point(config)
            found = [] if point is None else self.configs.near(point).tolist()
            self._neighbours[config] = tuple(map(self.configs.at, found))
        return self._neighbours[config]

    def _points(self, names: Sequence[str]) -> tuple[tuple[Values, ...], set[str]]:
        """Return the points of a block of these knobs, and the names of all knobs on which these points depend."""
        own, free = [knob for knob in KNOBS if knob.name in names], self.free
        axes = {name: free.get(name, (self._first[name],)) for name in names}
        found: dict[Values, None] = {}
        seen = {*names, *(BATCH_KNOBS if "batch_size" in names else ())}  # their product has bounds
        for values in product(*axes.values()):
            filled = Watched(self._first | dict(zip(axes, values, strict=True)))
            derived = {knob.name: self._value(knob, filled) for knob in own}
            point = Watched(self._first | derived)
            for knob in own:
                point[knob.name] = knob.canonical(point, self.circumstances)
            seen |= filled.seen | point.seen
            if self._fits(names, point):
                found[tuple(point[name] for name in names)] = None
        return tuple(found), seen

    def _fits(self, names: Sequence[str], values: dict[str, Value]) -> bool:
        """Return whether the values of these knobs may be searched together."""
        held, most = self.circumstances.global_batch, self.circumstances.most_samples
        if "batch_size" in names:
            samples = Config(values=values).global_batch_size()
            if (most is not None and samples > most) or held not in (None, samples):
                return False
        derived = {name: limit for name, limit in self._limits.items() if name in self._derived and name in names}
        return all(_within(values[name], limit) for name, limit in derived.items())

    def _value(self, knob: Knob, filled: dict[str, Value]) -> Value:
        derived = knob.derive(filled, self.circumstances)
        return filled[knob.name] if derived is None else derived


def canonical(config: Config, circumstances: Circumstances) -> Config:
    """Return the one configuration that stands for all that train exactly as `config` does here."""
    values = dict(config.values)
    for knob in KNOBS:
        values[knob.name] = knob.canonical(values, circumstances)
    return Config(values=values)


def change_count(config: Config, baseline: Config) -> int:
    """Return the number of changes between the baseline and `config`; micro-batch and accumulation count as one."""
    return len(changes_between(baseline.values, config.values))


def build(
    facts: TargetFacts, environment: Environment, goal: Goal, baseline: Config,
    can_take: Callable[[str, Value], bool] = lambda name, value: True,
) -> SearchSpace:  # fmt: skip
    """Return the space for this target on this machine within the goal's limits.

    `can_take` returns whether a knob's value can be written into the command that is the target. The baseline is a
    point of the space unless the user's own limits exclude it. Raises `UsageError` if a knob has no value left, or the
    held global batch exceeds the dataset.
    """
    _check_global_batch(facts, goal)
    everything = _circumstances(facts, environment, goal, None)
    today = canonical(baseline, everything)
    for knob in KNOBS:
        available(knob, (today[knob.name],), everything, "--baseline or `baseline` in the target")
    domains: dict[str, tuple[Value, ...]] = {}
    for knob in KNOBS:
        circumstances = _circumstances(facts, environment, goal, goal.limits.get(knob.name, facts.space.get(knob.name)))
        domains[knob.name] = _takeable(knob, _domain(knob, circumstances, goal, today), today, can_take)
    if goal.global_batch is not None and (
        not is_settable("gradient_accumulation_steps", facts) or holds_micro_batch(facts, goal)
    ):
        steps = today.gradient_accumulation_steps
        fitting = tuple(value for value in domains["batch_size"] if int(value or 0) * steps == everything.global_batch)
        domains["batch_size"] = fitting or domains["batch_size"]
    fixed = {knob.name: Limit(values=(today[knob.name],)) for knob in KNOBS if not is_settable(knob.name, facts)}
    space = SearchSpace(domains, everything, {**facts.space, **goal.limits, **fixed})
    if not space.configs:
        raise UsageError(nothing_left(facts, goal, domains["batch_size"]))
    return space


def holds_micro_batch(facts: TargetFacts, goal: Goal) -> bool:
    """Return whether another micro-batch trains another loss, and the user asks for none."""
    is_asked = "batch_size" in {**facts.space, **goal.limits} or goal.tune is not None
    return facts.is_mean_loss is False and not is_asked


def is_settable(name: str, facts: TargetFacts) -> bool:
    """Return whether a knob of the target can be set at all."""
    return facts.settable is None or name in facts.settable


def _takeable(
    knob: Knob, values: tuple[Value, ...], today: Config, can_take: Callable[[str, Value], bool]
) -> tuple[Value, ...]:
    found = tuple(value for value in values if value == today[knob.name] or can_take(knob.name, value))
    if not found:
        raise UsageError(
            f"The command cannot be given {knob.name} {', '.join(map(knob.show, values))}. Its argument probably takes "
            f"other words. Say what it takes with --map {knob.name}:FORMAT=--argument, or leave {option(knob.name)} "
            f"out."
        )
    return found


def _domain(knob: Knob, circumstances: Circumstances, goal: Goal, baseline: Config) -> tuple[Value, ...]:
    today = baseline[knob.name]
    if not is_settable(knob.name, circumstances.facts):
        limit = goal.limits.get(knob.name)
        if (limit is not None and not _within(today, limit)) or knob.name in (goal.tune or ()):
            raise UsageError(unsettable(knob, circumstances.facts))
        return (today,)
    if goal.exact and not knob.is_exact(circumstances.facts):
        limit = goal.limits.get(knob.name)
        if limit is not None and not _within(today, limit):
            raise UsageError(
                f"--exact keeps {knob.name} at the baseline's {knob.show(today)}, and "
                f"{limit_phrase(circumstances.limit)} exclude it. Another value would change what is computed. Leave "
                f"one of them out, or change --baseline."
            )
        return (today,)
    divides = knob.name == "batch_size" and (circumstances.global_batch or 0) % int(today or 1) == 0
    is_held = divides and holds_micro_batch(circumstances.facts, goal)
    unasked = is_held or (knob.on_request and circumstances.limit is None)
    is_tuned, limit = not unasked if goal.tune is None else knob.name in goal.tune, goal.limits.get(knob.name)
    if not is_tuned and (limit is None or _within(today, limit)):
        return (today,)
    values = available(knob, knob.domain(circumstances), circumstances, f"{option(knob.name)} or `space` in the target")
    if not values:
        raise UsageError(no_value(knob, circumstances))
    if not is_tuned and len(values) > 1:
        raise UsageError(
            f"--tune leaves {knob.name} out, and {limit_phrase(limit)} for it exclude the baseline's "
            f"{knob.show(today)} and leave {len(values)} others. A knob that is not tuned has one value. Name one with "
            f"{option(knob.name)}, or add {knob.alias} to --tune."
        )
    fits = knob.name != "batch_size" or circumstances.global_batch in (None, baseline.global_batch_size())
    if circumstances.limit is None and today not in values and fits:
        values = (*values, today)
        return tuple(sorted(values, key=lambda value: knob.position(value, circumstances))) if knob.ordered else values
    return values


def _circumstances(facts: TargetFacts, environment: Environment, goal: Goal, limit: Limit | None) -> Circumstances:
    held = held_by_a_rank(goal, facts)
    return Circumstances(facts=facts, environment=environment, global_batch=held, limit=limit)


def held_by_a_rank(goal: Goal, facts: TargetFacts) -> int | None:
    """Return the samples per optimizer step that each rank holds; None: they are free."""
    return None if goal.global_batch is None else goal.global_batch // facts.ranks


def _check_global_batch(facts: TargetFacts, goal: Goal) -> None:
    if goal.global_batch and goal.global_batch % facts.ranks:
        raise UsageError(
            f"The held global batch is {goal.global_batch:,}, and {facts.ranks} ranks share it. Each has as many "
            f"samples as the others. Give --global-batch a multiple of {facts.ranks}."
        )
    fewer = f", or train with fewer ranks than {facts.ranks}" if facts.ranks > 1 else ""
    if goal.global_batch and facts.dataset_samples is not None and goal.global_batch > facts.dataset_samples:
        raise UsageError(
            f"The dataset has {facts.dataset_samples:,} samples, the held global batch is {goal.global_batch:,}. Not "
            f"one optimizer step fits into an epoch. Lower --global-batch{fewer}."
        )


def _within(value: Value, limit: Limit) -> bool:
    return value in (limit.values if limit.values is not None else allowed((value,), limit))
