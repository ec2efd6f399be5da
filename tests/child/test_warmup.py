"""The warm-up ends when steps are steady: series of step times as they were recorded, and some to be afraid of."""

from __future__ import annotations

import importlib
import itertools
import random
from collections.abc import Iterable

import pytest

from autotune.child.warmup import WarmUp, growth_on
from autotune.core.requests import ProbeBudget

BUDGET = ProbeBudget(min_warmup_steps=3, min_warmup_seconds=0.0, max_seconds=4.0)
STILL: Iterable[tuple[int, ...]] = itertools.repeat(())


def steps_needed(
    series: Iterable[float], budget: ProbeBudget = BUDGET, counters: Iterable[tuple[int, ...]] = STILL
) -> int:
    """How many steps of `series` the warm-up takes; the counters of each step beside it."""
    told = iter(counters)
    warm_up = WarmUp(budget, lambda: next(told))
    for number, seconds in enumerate(series, 1):
        if warm_up.step(seconds, skipped=False):
            return number
    raise AssertionError("the warm-up never ended")


def noisy(base: float, spread: float) -> Iterable[float]:
    chance = random.Random(0)
    return (base * max(0.3, chance.gauss(1, spread)) for _ in itertools.count())


@pytest.mark.parametrize(
    ("series", "needed"),
    [
        pytest.param(itertools.repeat(0.01), 6, id="steady from the first step on"),
        pytest.param(itertools.chain([60.0], itertools.repeat(0.01)), 6, id="the first step compiles for a minute"),
        pytest.param(itertools.chain([7.0, 0.5, 0.3], itertools.repeat(0.01)), 8, id="the first three are slow"),
        pytest.param(itertools.chain([0.2 * 0.8**n for n in range(12)], itertools.repeat(0.014)), 17, id="fading"),
        pytest.param(itertools.chain([0.01] * 5, itertools.repeat(0.03)), 6, id="the loader's queue runs empty"),
        pytest.param((0.009 + 0.0001 * (n % 7) for n in itertools.count()), 6, id="a little noise"),
    ],
)
def test_the_warm_up_ends_where_steps_become_steady(series: Iterable[float], needed: int) -> None:
    assert steps_needed(series) == needed


@pytest.mark.parametrize("spread", [0.05, 0.2, 0.4, 1.35])
def test_noise_like_that_of_a_busy_machine_costs_few_steps(spread: float) -> None:
    assert steps_needed(noisy(0.01, spread)) <= 20


def test_a_run_that_never_becomes_steady_ends_after_the_longest_window_and_not_before() -> None:
    falling = [60.0] + [0.5 * 0.9**n for n in range(100)]

    needed = steps_needed(falling)

    assert sum(falling[1:needed]) > BUDGET.max_seconds
    assert sum(falling[1 : needed - 1]) <= BUDGET.max_seconds


@pytest.mark.parametrize("grown", [(14, 1), (13, 2)])
def test_memory_still_asked_for_and_graphs_still_compiled_are_waited_for(grown: tuple[int, int]) -> None:
    counters = [(10, 0), (12, 1)] + [(13, 1)] * 3 + [grown] * 20

    assert steps_needed(itertools.repeat(0.01), counters=counters) == 6 + 3


@pytest.mark.slow
def test_a_compiled_graph_shows_in_the_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = importlib.import_module("torch._dynamo.utils").counters["stats"]
    read = growth_on("cpu")

    before = read()
    monkeypatch.setitem(counters, "unique_graphs", counters["unique_graphs"] + 1)
    after = read()

    assert [now - then for then, now in zip(before, after, strict=True)] == [0, 1]


def test_the_seconds_and_steps_that_were_asked_for_are_kept() -> None:
    longer = ProbeBudget(min_warmup_steps=9, min_warmup_seconds=0.2)

    assert steps_needed(itertools.repeat(0.01), longer) == 20
    assert steps_needed(itertools.repeat(0.1), longer) == 9


def test_steps_that_were_skipped_do_not_count_as_successes() -> None:
    warm_up = WarmUp(BUDGET, lambda: ())

    ended = [warm_up.step(1.0, skipped=number < 8) for number in range(10)]

    assert ended == [False] * 9 + [True]
