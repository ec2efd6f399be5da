"""Which configurations plain loops must run to judge answers: each change reverted, added, and put in another's place.

A *change* is a knob with another value, or micro-batch and accumulation together. All configurations are `key`s.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from autotune.core.records import Value
from autotune.knobs import KNOBS
from benchmarks.answers_check.records import Answers, Died, key, values_of
from benchmarks.answers_check.targets import Target

BATCH = ("batch_size", "gradient_accumulation_steps")  # one change: where their product is held, neither moves alone
RIVALS = 3  # of all that was screened, beside the answers
OTHERS = 2  # confirmed configurations of each search that are screened


def changes(one: str, other: str) -> list[tuple[str, ...]]:
    """The changes between two configurations."""
    groups = [BATCH, *((knob.name,) for knob in KNOBS if knob.name not in BATCH)]
    first, second = values_of(one), values_of(other)
    return [group for group in groups if any(first[name] != second[name] for name in group)]


def put(config: str, group: tuple[str, ...], source: str) -> str:
    """`config` with one change as in `source`."""
    return key({**values_of(config), **{name: values_of(source)[name] for name in group}})


def samples(config: str) -> int:
    """Per optimizer step."""
    return math.prod(int(values_of(config)[name] or 1) for name in BATCH)


def is_near(one: str, other: str) -> bool:
    """Whether micro-batches, and global batches, are within a power of two."""
    micro = [int(values_of(config)["batch_size"] or 1) for config in (one, other)]
    total = [samples(one), samples(other)]
    return all(max(pair) <= 2 * min(pair) for pair in (micro, total))


def reverted(answer: str, baseline: Mapping[str, Value]) -> dict[tuple[str, ...], str]:
    """The answer without each of its changes."""
    return {group: put(answer, group, key(baseline)) for group in changes(answer, key(baseline))}


def added(answer: str, answers: Answers, target: Target) -> dict[tuple[str, ...], str]:
    """The answer with one change that it does not make and a rival makes, as the fastest of these makes it.

    Not the batch where none is declared: the curve judges that one.
    """
    left_out = {*changes(answer, key(answers.baseline))} | (set() if target.declares_batch else {BATCH})
    found = dict[tuple[str, ...], str]()
    for rival in rivals(answer, answers, target):
        for group in changes(answer, rival):
            if group not in left_out:
                found.setdefault(group, put(answer, group, rival))
    return found


def swapped(answer: str, other: str) -> dict[tuple[str, ...], str]:
    """The answer with each change of another answer in place of its own; without batches, which are just compared."""
    return {group: put(answer, group, other) for group in changes(answer, other) if group != BATCH}


def candidates(answers: Answers, target: Target) -> tuple[str, ...]:
    """What is screened: every answer, what the searches confirmed beside it, and the hand-made grid.

    At the batch of the first answer where none is declared: speeds of different global batches are no rivals.
    """
    if not answers.answered:
        return ()
    told = [one for one in answers.searches if one.values]
    found = [key(values) for one in told for values in (one.values, *one.others[:OTHERS])]
    found += [key(cell) for cell in target.cells() if not is_refused(cell, answers)]
    return tuple(dict.fromkeys(_alike(config, answers.answered[0], target) for config in found))


def is_refused(values: Mapping[str, Value], answers: Answers) -> bool:
    """Whether paired losses excluded its arithmetic in a search: being fast is then no reason to recommend it."""
    refused = [each for one in answers.searches for each in one.refused]
    return any(each.items() <= {**values}.items() for each in refused)


def rivals(answer: str, answers: Answers, target: Target) -> tuple[str, ...]:
    """The fastest that were screened, the fastest first, with as many samples per optimizer step as the answer."""
    living = {config: rate for config, rate in answers.screened.items() if not isinstance(rate, Died)}
    fastest = sorted(living, key=lambda config: -living[config])
    return tuple(dict.fromkeys(_alike(config, answer, target) for config in fastest))[:RIVALS]


def curve(answers: Answers, target: Target) -> dict[int, str]:
    """The first answer at each batch of the curve, without accumulation."""
    if not answers.answered:
        return {}
    first = values_of(answers.answered[0])
    return {size: key({**first, "batch_size": size, "gradient_accumulation_steps": 1}) for size in target.curve}


def wanted(answers: Answers, target: Target) -> tuple[str, ...]:
    """All configurations that are run interleaved, once everything is screened."""
    return tuple(dict.fromkeys(_wanted(answers, target)))


def _wanted(answers: Answers, target: Target) -> Iterator[str]:
    loaded = answers.loaded
    for answer in answers.answered:
        yield answer
        yield from rivals(answer, answers, target)
        yield from reverted(answer, answers.baseline).values()
        yield from added(answer, answers, target).values()
    if answers.answered:
        first = answers.answered[0]
        beside = (key(loaded.values),) if loaded and loaded.values else ()
        for other in (*answers.answered[1:], *beside):
            yield from swapped(first, other).values()
        yield from curve(answers, target).values()


def _alike(config: str, answer: str, target: Target) -> str:
    return config if target.declares_batch else put(config, BATCH, answer)
