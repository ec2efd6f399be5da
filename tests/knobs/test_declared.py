"""A declared knob behaves as one of ours, in its own context only."""

from __future__ import annotations

from contextvars import copy_context
from enum import StrEnum

import numpy as np
import pytest

from autotune.core import codec
from autotune.core.records import Config, Declaration, Limit
from autotune.knobs import KNOBS, OURS, completed, defaults, knob, touched
from autotune.knobs.base import MemoryEffect
from autotune.knobs.changes import changes_between
from autotune.knobs.declared import DeclaredKnob, declaration, declare, declaring, scalar
from autotune.knobs.parsing import checked_value
from autotune.study.shown import shown_config
from autotune.testing.knob_contract import circumstances

ATTN = declaration("attn", ["sdpa", "flash"])
ROWS = declaration("rows", {"values": [16, 4, 8], "memory": "grows", "changes_arithmetic": False})


def test_what_is_declared_is_a_knob_until_the_end() -> None:
    with declaring(ATTN, ROWS):
        assert [one.name for one in KNOBS[len(OURS) :]] == ["attn", "rows"]
        assert knob("attn").default == "sdpa"
        assert changes_between(defaults(), {**defaults(), "attn": "flash"}) == [("attn",)]

    assert tuple(KNOBS) == OURS


def test_another_context_does_not_know_it() -> None:
    copy_context().run(declare, ATTN)

    assert tuple(KNOBS) == OURS


def test_records_of_other_studies_are_not_completed_with_it() -> None:
    with declaring(ATTN):
        assert "attn" not in completed(Config(values={"batch_size": 8})).values
        assert "attn" in {one.name for one in touched([Config(values={**defaults(), "attn": "flash"})])}


def test_numbers_are_ordered_by_size_whatever_the_baseline() -> None:
    rows = DeclaredKnob(ROWS)

    assert (rows.default, rows.values, rows.ordered) == (16, (4, 8, 16), True)
    assert rows.memory is MemoryEffect.GROWS
    assert not rows.numerics


def test_of_what_nobody_said_anything_the_losses_are_compared() -> None:
    attn = DeclaredKnob(ATTN)

    assert attn.numerics
    assert not attn.ordered
    assert attn.memory is MemoryEffect.CHANGES


def test_only_declared_values_can_be_asked_for() -> None:
    attn = DeclaredKnob(ATTN)

    with pytest.raises(ValueError, match="attn must be one of sdpa, flash, got 'math'"):
        attn.parse("math")
    assert attn.domain(circumstances(limit=Limit(values=("flash",)))) == ("flash",)


@pytest.mark.parametrize(
    ("typed", "value"), [("8", 8), ("0.5", 0.5), ("true", True), ("none", None), ("flash", "flash"), ("inf", "inf")]
)
def test_a_typed_value_has_the_type_that_it_looks_like(typed: str, value: object) -> None:
    assert scalar(typed) == value
    assert type(scalar(typed)) is type(value)


def test_a_value_of_another_type_is_another_value() -> None:
    switch = DeclaredKnob(declaration("fast", [False, True]))

    with pytest.raises(ValueError, match="got 1"):
        switch.check(1)
    assert switch.parse("true") is True


@pytest.mark.parametrize("values", [[1, True], [0.0, 0], [False, 0]])
def test_values_that_python_takes_for_one_are_one(values: list[float]) -> None:
    with pytest.raises(ValueError, match="same value twice"):
        declaration("flag", values)


class _Kind(StrEnum):
    FLASH = "flash"


@pytest.mark.parametrize(
    ("written", "values"),
    [(list(np.linspace(0.25, 0.75, 3)), (0.25, 0.5, 0.75)), ([_Kind.FLASH, "sdpa"], ("flash", "sdpa"))],
)
def test_values_of_other_types_travel_as_what_json_has(written: list[object], values: tuple[object, ...]) -> None:
    made = declaration("alpha", written)

    assert codec.decode(codec.encode(made), Declaration).values == made.values == values
    with declaring(made):
        assert type(checked_value("alpha", written[0])) is type(values[0])


def test_a_set_has_no_first_value_and_so_none_of_today() -> None:
    with pytest.raises(ValueError, match=r"attn has a set of values, .* what you train with today. Write a list"):
        declaration("attn", {"sdpa", "flash"})


def test_a_configuration_without_it_is_not_shown_with_it() -> None:
    with declaring(ATTN):
        assert shown_config({**defaults(), "batch_size": 8}, list(KNOBS[len(OURS) :])) == "8×1"
        assert (
            shown_config({**defaults(), "batch_size": 8, "attn": "sdpa"}, list(KNOBS[len(OURS) :])) == "8×1 attn sdpa"
        )
