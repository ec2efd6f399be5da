"""Declared knobs in a search: their domain, their baseline, and what is asked of them by name."""

from __future__ import annotations

from contextvars import copy_context
from typing import Any

import pytest

from autotune.answer.recommend import StudyFacts, recommend
from autotune.core.codes import Code
from autotune.core.records import Config, Declaration, Limit, StudyRequest
from autotune.core.results import Trial
from autotune.errors import UsageError
from autotune.knobs import KNOBS, knob
from autotune.precision.arithmetic import full_precision
from autotune.preparation.prepare import settle
from autotune.preparation.settings import Settings
from autotune.sampler.space import SearchSpace
from autotune.study.summary import ConfigSummary
from tests.worlds import environment, facts, good, measured

ATTN = Declaration(name="attn", values=("sdpa", "flash"), default="sdpa", takers=("model",))
ROWS = Declaration(name="rows", values=(16, 4, 8), default=16, ordered=True, changes_arithmetic=False)


def settled(**asked: Any) -> tuple[StudyRequest, SearchSpace]:
    def work() -> tuple[StudyRequest, SearchSpace]:
        request, space = settle(Settings(target="model.py", **asked), environment(), facts(declared=(ATTN, ROWS)))
        assert full_precision(request.baseline, request.facts) == request.baseline
        assert not knob("rows").numerics
        return request, space

    return copy_context().run(work)


def test_declared_values_are_searched_from_the_default_on() -> None:
    request, space = settled()

    assert (request.baseline["attn"], request.baseline["rows"]) == ("sdpa", 16)
    assert (space.domains["attn"], space.domains["rows"]) == (("sdpa", "flash"), (4, 8, 16))
    assert "attn" not in {one.name for one in KNOBS}


def test_losses_are_compared_with_those_of_the_baseline_that_was_asked_for() -> None:
    request, _ = settled(baseline={"attn": "flash"})

    assert request.baseline["attn"] == "flash"
    assert request.facts.declared[0].default == "flash"


def test_exact_leaves_alone_what_may_change_the_arithmetic() -> None:
    _, space = settled(exact=True)

    assert (space.domains["attn"], space.domains["rows"]) == (("sdpa",), (4, 8, 16))


def test_where_a_setting_of_the_users_own_is_in_doubt_precision_is_not_spoken_of() -> None:
    def work() -> Any:
        request, _ = settle(Settings(target="model.py"), environment(), facts(declared=(ATTN, ROWS)))
        flash = Config(values={**request.baseline.values, "attn": "flash"})
        ran = [
            ConfigSummary(config=one, verdicts=(good(rate),) * 2, trials=tuple(
                Trial(number=number, purpose="confirm", config=one, result=measured(rate)) for number in range(2)))
            for one, rate in ((request.baseline, 100.0), (flash, 300.0))
        ]  # fmt: skip
        return recommend(ran, request, StudyFacts(study="x", probes=4, seconds=1.0))

    answer = copy_context().run(work)

    (doubt,) = [one.text for one in answer.warnings if one.code is Code.PRECISION_UNDECIDED]
    assert doubt.startswith("Whether this learns as your code with attn sdpa does is undecided: there was no time")
    assert doubt.endswith("or hold what changes the arithmetic (--fix attn=sdpa, or --exact).")
    assert answer.stability.text.endswith("not compared with your code with attn sdpa step by step")


def test_values_are_those_declared_however_they_were_typed() -> None:
    _, space = settled(limits={"rows": Limit(values=("8",)), "attn": Limit(values=("flash",))})

    assert (space.domains["attn"], space.domains["rows"]) == (("flash",), (8,))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"limits": {"atn": Limit(values=("flash",))}}, "--fix: there is no knob 'atn'.*Did you mean attn"),
        ({"tune": ("atn",)}, "--tune: there is no knob 'atn'"),
        ({"baseline": {"attn": "math"}}, "--baseline: attn must be one of sdpa, flash, got 'math'"),
    ],
    ids=lambda asked: next(iter(asked)) if isinstance(asked, dict) else "",
)
def test_a_name_or_value_that_the_target_does_not_declare_is_refused(asked: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        settled(**asked)
