"""`activation_memory_budget`: where it may be asked for, how it is written, and what frameworks are told."""

import pytest
import torch._functorch.config as functorch
from msgspec.structs import replace

from autotune.core.records import Goal, Limit
from autotune.knobs import knob
from autotune.knobs.wording import Framework
from autotune.study.shown import shown_config
from autotune.testing import ENVIRONMENT
from autotune.testing.knob_contract import CPU, KnobContract, circumstances
from tests.worlds import space

BUDGET = knob("activation_memory_budget")
WITH_GPU = replace(ENVIRONMENT, no_compiler="")


class TestWithACompiler(KnobContract):
    """The registered knobs are tested on machines without one, where this has no value but its default."""

    knob = BUDGET
    PLACES = (WITH_GPU, replace(CPU, no_compiler=""))

    @pytest.fixture(autouse=True)
    def torchs_own_afterwards(self):
        with functorch.patch(activation_memory_budget=1.0):
            yield


def test_it_is_there_where_a_compiler_is_and_searched_on_request_only():
    assert BUDGET.domain(circumstances(WITH_GPU)) == (None, 0.75, 0.5, 0.25)
    assert BUDGET.domain(circumstances(replace(CPU, no_compiler="no C++ compiler is installed"))) == (None,)
    assert space(on=WITH_GPU).domains[BUDGET.name] == (None,)

    asked = {BUDGET.name: Limit(values=(None, 0.5))}
    listed = {config[BUDGET.name] for config in space(Goal(global_batch=64, limits=asked), on=WITH_GPU).configs
              if config["compile_mode"] is None}  # fmt: skip
    assert listed == {None}  # without compiled graphs there is no budget


@pytest.mark.parametrize(("text", "value"), [("0.5", 0.5), ("50%", 0.5), ("0.25", 0.25), ("none", None)])
def test_what_people_type_is_understood(text, value):
    assert BUDGET.parse(text) == value


@pytest.mark.parametrize("text", ["0.3", "true", "half"])
def test_other_shares_are_refused_with_those_that_there_are(text):
    with pytest.raises(ValueError, match=r"must be 0\.75, 0\.5, 0\.25 or None"):
        BUDGET.parse(text)


@pytest.mark.parametrize("framework", list(Framework))
def test_every_framework_is_told_torchs_setting(framework):
    assert BUDGET.wording(0.5, framework, "cuda:0").setup[-1].endswith("activation_memory_budget = 0.5")
    assert not BUDGET.wording(None, framework, "cuda:0").setup


def test_its_share_stands_beside_its_name():
    assert (
        shown_config({"batch_size": 8, "gradient_accumulation_steps": 1, BUDGET.name: 0.5}, ())
        == "8×1 memory_budget 50%"
    )
