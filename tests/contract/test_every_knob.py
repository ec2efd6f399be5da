"""Every knob of ours keeps the contract for knobs; a new one is tested by being registered."""

import os
import sys
from unittest import SkipTest

import msgspec
import pytest
import torch

from autotune.core.records import Goal, Limit
from autotune.knobs import KNOBS, defaults, environ, knob
from autotune.knobs.base import Knob, MemoryEffect, Plan
from autotune.testing import FakeLauncher
from autotune.testing.knob_contract import CPU, KnobContract, circumstances
from tests.worlds import config, environment, facts, space


class TestEveryKnob(KnobContract):
    @pytest.fixture(autouse=True, params=KNOBS, ids=lambda one: one.name)
    def registered(self, request):
        self.knob = request.param

    def test_its_default_is_the_registered_one(self):
        assert self.knob.default == defaults()[self.knob.name]

    @pytest.mark.slow
    def test_what_it_says_to_compute_alike_it_does(self):
        super().test_what_it_says_to_compute_alike_it_does()

    def test_it_is_found_by_name_and_by_alias(self):
        assert knob(self.knob.name) is self.knob
        assert knob(self.knob.alias) is self.knob


@pytest.fixture
def threads():
    """Torch's thread count is given back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class ToyKnob(Knob):
    """A knob that nobody has heard of: sets one loader option."""

    name, alias, label, ordered, default, memory = "toy", "toy", "toy", True, 1, MemoryEffect.NONE

    def domain(self, circumstances):
        limit = circumstances.limit
        return limit.values if limit and limit.values else (1, 2, 3)

    def check(self, value):
        if value not in (1, 2, 3):
            raise ValueError(f"toy must be 1, 2 or 3, got {value!r}")

    def parse(self, text):
        if not text.isdecimal():
            raise ValueError(f"toy must be a whole number, got {text!r}")
        return int(text)

    def show(self, value):
        return f"t{value}"

    def phrase(self, value):
        return f"toy {value}"

    def caution(self, value):
        return 0.0

    def apply(self, value, plan):
        plan.loader_options["drop_last"] = True  # as the loop has it anyway


class TestToyKnob(KnobContract):
    """The contract holds for a knob that no registry knows."""

    knob = ToyKnob()


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        ({"domain": lambda self, _: (1, 1)}, "test_its_domain_is_finite_without_repetition_and_checked"),
        ({"domain": lambda self, _: (3, 1)}, "test_an_ordered_domain_ascends"),
        ({"check": lambda self, value: None}, "test_nonsense_is_refused_with_rule_and_value"),
        ({"show": lambda self, value: "same"}, "test_what_it_shows_differs_between_values_and_is_short"),
        ({"caution": lambda self, value: -1.0}, "test_caution_and_phrase_are_defined_for_every_value"),
        ({"phrase": lambda self, value: ""}, "test_caution_and_phrase_are_defined_for_every_value"),
    ],
)
def test_a_knob_that_breaks_the_contract_fails_it(broken, test):
    contract = KnobContract()
    contract.knob = type("Broken", (ToyKnob,), broken)()

    with pytest.raises(AssertionError):
        getattr(contract, test)()


class Rounding(ToyKnob):
    """Says that it changes nothing, and rounds all weights to bfloat16 once."""

    def apply(self, value, plan):
        def rounded(model):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(parameter.bfloat16())
            return model

        plan.model_transforms += [rounded] * (value > 1)


class Autocast(ToyKnob):
    """The same, by computing in float16."""

    def apply(self, value, plan):
        plan.forward_contexts += [lambda: torch.autocast("cpu", torch.float16)] * (value > 1)


class Eager(ToyKnob):
    """The same, by gradients that are a little longer."""

    def apply(self, value, plan):
        def longer(model):
            for parameter in model.parameters():
                parameter.register_hook(lambda gradient: 1.0001 * gradient)
            return model

        plan.model_transforms += [longer] * (value > 1)


class Outside(ToyKnob):
    """The same, by an environment variable."""

    def environ(self, value):
        return {"ROUNDING": "1"} if value > 1 else {}

    def apply(self, value, plan):
        if os.environ.get("ROUNDING"):
            Rounding().apply(value, plan)


@pytest.mark.slow
@pytest.mark.parametrize("lying", [Rounding, Autocast, Eager, Outside])
def test_a_knob_that_claims_falsely_to_compute_alike_is_caught(lying):
    contract = KnobContract()
    contract.knob = lying()

    with pytest.raises(AssertionError, match="its losses differ by"):
        contract.test_what_it_says_to_compute_alike_it_does()


def test_a_knob_that_says_to_change_arithmetic_is_left_to_the_precision_check():
    contract = KnobContract()
    contract.knob = type("Honest", (Rounding,), {"numerics": True})()

    with pytest.raises(SkipTest, match="compared in a search"):
        contract.test_what_it_says_to_compute_alike_it_does()


def test_a_knob_that_changes_arithmetic_may_not_pass_for_exact():
    contract = KnobContract()
    contract.knob = type("Both", (Rounding,), {"numerics": True, "is_exact": lambda self, facts: True})()

    with pytest.raises(AssertionError, match="--exact would search it"):
        contract.test_what_it_says_to_compute_alike_it_does()


def test_a_new_knob_is_one_registry_line(monkeypatch, tmp_path):
    """Space, guard, sampler, search, table and best.json all know it, and none was edited."""
    from autotune.context.reporter import SilentReporter
    from autotune.preparation.settings import Settings
    from autotune.report.answer import answer_block
    from autotune.study.view import load_view
    from autotune.tuning.engine import search

    registry = (*KNOBS, ToyKnob())
    for module in [m for name, m in sys.modules.items() if name.startswith("autotune")]:
        if getattr(module, "KNOBS", None) is KNOBS:
            monkeypatch.setattr(module, "KNOBS", registry)
    launcher = FakeLauncher(facts=facts(baseline={"batch_size": 64}))

    found = search(
        Settings(target="model.py", study=tmp_path / "study", probes=6), launcher, SilentReporter(), launcher.clock
    )

    view = load_view(tmp_path / "study")
    assert view.request.domains["toy"] == (1, 2, 3)
    assert len({trial.config["toy"] for trial in view.trials}) > 1
    assert found.params["toy"] in (1, 2, 3)
    assert "toy" in str(answer_block(found, verbose=True))


def test_the_accumulation_follows_from_a_held_global_batch():
    held = space(Goal(global_batch=96), config(batch_size=96))

    assert {c.global_batch_size() for c in held.configs} == {96}
    assert {c.batch_size for c in held.configs} >= {96, 48, 32}


@pytest.mark.parametrize(
    ("global_batch", "ladder"),
    [
        (64, (8, 16, 32, 64)),
        (240, (8, 15, 16, 24, 30, 40, 48, 60, 80, 120, 240)),
        (96, (8, 12, 16, 24, 32, 48, 96)),
        (4, (4,)),
        (7, (7,)),
    ],
)
def test_micro_batches_divide_the_held_global_batch(global_batch, ladder):
    assert knob("batch_size").domain(circumstances(global_batch=global_batch)) == ladder


def test_a_free_batch_is_a_power_of_two_within_the_dataset():
    assert knob("batch_size").domain(circumstances()) == (8, 16, 32, 64, 128, 256)


def test_a_user_range_may_go_below_and_above_the_default_ladder():
    large = facts(dataset_samples=100_000)
    values = knob("batch_size").domain(circumstances(facts=large, limit=Limit(low=2, high=8192)))

    assert values[0] == 2 and values[-1] == 8192


def test_workers_stop_at_the_usable_cores_unless_the_user_says_more():
    two_cores = environment(usable_cores=2)

    assert knob("num_workers").domain(circumstances(environment=two_cores)) == (0, 1, 2)
    more = Limit(low=0, high=6)
    assert knob("num_workers").domain(circumstances(environment=two_cores, limit=more)) == (0, 1, 2, 4, 6)


def test_synthetic_batches_have_no_workers_to_tune():
    assert knob("num_workers").domain(circumstances(facts=facts(data="batch"))) == (0,)


def test_only_native_dtypes_are_offered_but_others_can_be_asked_for():
    old = environment(native_dtypes=())

    assert knob("amp_dtype").domain(circumstances(environment=old)) == (None,)
    asked = Limit(values=("float16",))
    assert knob("amp_dtype").domain(circumstances(environment=old, limit=asked)) == ("float16",)


def test_channels_last_needs_convolutions():
    assert knob("channels_last").domain(circumstances(facts=facts(has_convolution=False))) == (False,)


@pytest.mark.parametrize(
    ("blocks", "domain"),
    [
        (0, (False,)),
        (1, (False,)),
        (2, (False, "every_second", "selective", True)),
        (3, (False, "every_third", "every_second", "selective", True)),
        (4, (False, "every_second", "selective", True)),  # the third would be two of four, too
        (12, (False, "every_third", "every_second", "selective", True)),
    ],
)
def test_checkpointing_needs_several_blocks(blocks, domain):
    here = circumstances(facts=facts(checkpointable_blocks=blocks))

    assert knob("activation_checkpointing").domain(here) == domain


def test_only_checkpointing_trades_time_for_memory():
    trading = [
        (tested.name, value)
        for tested in KNOBS
        for value in tested.domain(circumstances())
        if tested.influence(value).trades_time_for_memory
    ]

    assert {name for name, _ in trading} == {"activation_checkpointing"}
    assert [value for _, value in trading] == ["every_third", "every_second", "selective", True]


def test_a_trainers_own_argument_recomputes_all_blocks_or_none():
    here = circumstances(facts=facts(checkpointable_blocks=12, written=("activation_checkpointing",)))

    assert knob("activation_checkpointing").domain(here) == (False, True)


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("false", False), ("full", True), ("none", False), ("every_second", "every_second"), ("1", True)],
)
def test_policies_are_typed_in_words_and_the_former_switch_still_is(text, value):
    assert knob("checkpointing").parse(text) is value or knob("checkpointing").parse(text) == value != 1


@pytest.mark.parametrize(
    ("value", "other", "needs_no_less"),
    [
        (False, "every_third", True),
        ("every_third", "every_second", False),  # the fourth block is none of every second
        ("every_second", "every_third", False),
        ("every_second", True, True),
        (False, "selective", False),  # it keeps results that training without it does not keep
        ("selective", True, True),
        ("selective", "every_second", False),  # which of these needs more depends on the model
        ("every_second", "selective", False),
        (True, "selective", False),
        ("selective", "selective", True),
    ],
)
def test_more_recomputing_never_needs_more_memory_where_it_contains_the_other(value, other, needs_no_less):
    assert knob("checkpointing").needs_no_less(value, other) is needs_no_less


def test_autocast_that_would_be_disabled_silently_is_an_error():
    plan = Plan(device="cpu")
    knob("amp_dtype").apply("float64", plan)  # torch would only warn, and go on in float32

    with pytest.raises(ValueError, match="autocast was disabled"):
        plan.setup[0]()


def test_loader_options_that_need_workers_appear_only_with_them():
    without, with_two = Plan(device="cpu"), Plan(device="cuda:0")
    knob("num_workers").apply(0, without)
    knob("num_workers").apply(2, with_two)

    assert without.loader_options == {"num_workers": 0, "pin_memory": False}
    assert with_two.loader_options == {
        "num_workers": 2, "pin_memory": True, "persistent_workers": True, "prefetch_factor": 2
    }  # fmt: skip


def _threads(**changes):
    limit = changes.pop("limit", None)
    machine = msgspec.structs.replace(CPU, **changes)
    return knob("num_threads").domain(circumstances(environment=machine, limit=limit))


@pytest.mark.parametrize(
    ("cores", "default", "domain"),
    [
        (1, 1, (None,)),
        (2, 2, (1, None)),
        (2, 1, (None, 2)),  # OMP_NUM_THREADS=1 in the user's shell
        (6, 6, (1, 2, 4, None)),
        (6, 3, (1, 2, None, 4, 6)),
        (2, 8, (1, 2, None)),
        (2, None, (1, None)),
    ],
)
def test_threads_ascend_by_the_count_that_computes_and_none_stands_for_torchs_own(cores, default, domain):
    assert _threads(usable_cores=cores, default_threads=default) == domain


def test_threads_are_left_alone_on_an_accelerator_unless_they_are_listed():
    assert _threads(device="cuda:0") == (None,)
    assert _threads(device="cuda:0", limit=Limit(low=1, high=4)) == (None,)
    assert _threads(device="cuda:0", limit=Limit(values=(2,))) == (2,)


def test_a_range_of_threads_speaks_of_the_count_that_none_stands_for_too():
    assert _threads(limit=Limit(low=1, high=4)) == (1, 2, 4)
    assert _threads(limit=Limit(low=5)) == (None,)


def test_the_threads_are_set_when_the_plan_is_carried_out(threads):
    plan = Plan(device="cpu")
    other = 1 if torch.get_num_threads() > 1 else 2

    knob("num_threads").apply(other, plan)
    before = torch.get_num_threads()
    for switch in plan.setup:
        switch()

    assert before != other
    assert torch.get_num_threads() == other


@pytest.mark.parametrize(
    ("changes", "domain"),
    [
        ({}, (None, "passive")),
        ({"usable_cores": 1}, (None,)),
        ({"platform": "Darwin 24"}, (None,)),
        ({"device": "cuda:0"}, (None,)),
        ({"omp_wait_policy": "active"}, (None,)),  # the user's shell says so
    ],
)
def test_waiting_threads_are_put_to_sleep_only_where_they_take_a_core_from_somebody(changes, domain):
    machine = msgspec.structs.replace(CPU, **changes)

    assert knob("omp_wait_policy").domain(circumstances(environment=machine)) == domain


def test_without_a_loader_nobody_competes_with_waiting_threads():
    lonely = circumstances(environment=CPU, facts=facts(data="batch"))

    assert knob("omp_wait_policy").domain(lonely) == (None,)


def test_only_what_is_set_goes_into_the_environment():
    assert environ(defaults()) == {}
    assert environ({"omp_wait_policy": "passive"}) == {"OMP_WAIT_POLICY": "passive"}
