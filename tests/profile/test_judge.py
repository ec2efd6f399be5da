"""What readings say: pure, with numbers that are written down."""

from typing import get_args

import pytest

from autotune.core.results import Outcome
from autotune.core.slow_line_sentences import SLOW_LINE_TEXTS
from autotune.profile.advice import instead, seen
from autotune.profile.judge import at_most, expensive_lines, expensive_modules, share_of_parts, step_bottleneck
from autotune.profile.records import PARTS, ModuleSeconds, PartSeconds, ProfileResult, SlowLine, Slowness
from autotune.profile.stage import slow_lines
from tests.profiling import readings, slow


def result(*found, **seconds):
    parts = tuple(PartSeconds(part=part, seconds=seconds.get(part, 0.0)) for part in PARTS)
    return ProfileResult(
        outcome=Outcome.OK, steps=2, step_seconds=(0.1, 0.1), samples=8, parts=parts, slow_lines=tuple(found)
    )


def line(seconds, **changes):
    usual = {"kind": "python", "place": "model.py:3 in loss", "code": "", "what": "loss", "count": 1.0}
    return SlowLine(**{**usual, "seconds": seconds, **changes})


def module(name, forward, backward=0.0):
    return ModuleSeconds(name=name, kind="Linear", forward=forward, backward=backward)


def test_waiting_for_data_is_the_bottleneck_with_what_workers_can_give_at_most():
    profiled = result(data=0.062, forward=0.018, backward=0.02)

    assert share_of_parts(profiled, "data") == pytest.approx(0.62)
    assert step_bottleneck(profiled) == (
        "Waiting for data takes 62% of a step: loader workers, or a faster dataset, can give at most 2.63×."
    )


def test_forward_and_backward_pass_are_one_bottleneck_and_the_loader_is_said_not_to_help():
    profiled = result(data=0.04, forward=0.03, backward=0.03)

    assert step_bottleneck(profiled) == (
        "Model and loss take 60% of a step: making them faster can give at most 2.50×, loader workers 1.67×."
    )


@pytest.mark.parametrize(
    ("part", "says"), [("copy", "pinned memory"), ("optimizer", "a faster update"), ("other", "between the parts")]
)
def test_every_part_can_be_the_bottleneck(part, says):
    assert says in step_bottleneck(result(**{part: 0.1}))


def test_a_bound_is_amdahls():
    assert at_most(0.5) == 2
    assert at_most(0.0) == 1


def test_slow_lines_are_ordered_by_cost_with_growing_memory_before_all():
    cheap, dear, growth = line(0.002), line(0.05), line(0.0, kind="growth", bytes=2.0**20)

    assert expensive_lines(result(cheap, dear, growth, forward=0.1)) == [growth, dear, cheap]


def test_what_costs_less_than_a_hundredth_of_a_step_is_no_slow_line():
    assert expensive_lines(result(line(0.0009), forward=0.1)) == []


def test_an_expensive_module_is_shown_by_its_parts_and_all_together_are_the_time_of_all():
    modules = [
        module("", 0.01),
        module("body.0", 0.3),
        module("body.1", 0.2),
        module("head", 0.1),
        module("(loss)", 0.05),
    ]

    shown = expensive_modules(modules)

    assert [one.name for one in shown] == ["body.0", "body.1", "head", "(loss)", "(model) itself"]
    assert sum(one.forward for one in shown) == pytest.approx(0.66)


def test_every_kind_of_slow_line_has_words_and_an_edit():
    assert set(get_args(Slowness)) == SLOW_LINE_TEXTS.keys()


@pytest.mark.parametrize("kind", get_args(Slowness))
def test_a_search_says_of_each_kind_what_a_profile_says(kind):
    one = slow(kind, bytes=2.0**20, steps_left=900, ratio=8.0, count=2.0)

    (told,) = slow_lines(readings(one), wait_share=1.0)

    assert f"{seen(one)}. Instead: {instead(one)}." in told.text
    assert "{" not in told.text
