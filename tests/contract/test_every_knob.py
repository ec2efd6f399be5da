"""What every knob must do; a new one is tested by being registered."""

import math
import pickle
import sys

import msgspec
import pytest
import torch

from autotune.knobs import KNOBS, defaults, knob
from autotune.knobs.base import Circumstances, MemoryEffect, Plan
from autotune.records import Goal, Limit
from tests.worlds import config, environment, facts, space

every_knob = pytest.mark.parametrize("tested", KNOBS, ids=lambda k: k.name)
SMALL = facts(dataset_samples=300)


def _circumstances(**changes):
    given = {"facts": SMALL, "environment": environment(), "global_batch": None, **changes}
    return Circumstances(**given)


@every_knob
def test_its_domain_is_finite_without_repetition_and_checked(tested):
    values = tested.domain(_circumstances())

    assert 1 <= len(values) < 100
    assert len({repr(value) for value in values}) == len(values)
    for value in values:
        tested.check(value)


@every_knob
def test_an_ordered_domain_ascends(tested):
    values = tested.domain(_circumstances())

    if tested.ordered:
        assert list(values) == sorted(values)


@every_knob
def test_its_default_is_a_value_it_accepts(tested):
    tested.check(tested.default)

    assert tested.default == defaults()[tested.name]


@every_knob
def test_nonsense_is_refused_with_rule_and_value(tested):
    for nonsense in ("nonsense", -1, 1.5, [], object):
        with pytest.raises(ValueError, match=tested.name):
            tested.check(nonsense)
    with pytest.raises(ValueError, match=tested.name):
        tested.parse("nonsense")


@every_knob
def test_what_it_shows_differs_between_values_and_is_short(tested):
    shown = [tested.show(value) for value in tested.domain(_circumstances())]

    assert len(set(shown)) == len(shown)
    assert max(map(len, shown)) <= 9
    assert len(tested.label) <= 9


@every_knob
def test_its_values_survive_json_and_typing(tested):
    for value in tested.domain(_circumstances()):
        assert msgspec.json.decode(msgspec.json.encode(value)) == value
        assert tested.parse(str(value).lower()) == value


@every_knob
def test_it_is_found_by_name_and_by_alias(tested):
    assert knob(tested.name) is tested
    assert knob(tested.alias) is tested


@every_knob
def test_an_explicit_list_is_its_domain(tested):
    listed = tested.domain(_circumstances())[:1]

    assert tested.domain(_circumstances(limit=Limit(values=listed))) == listed


@every_knob
def test_caution_and_phrase_are_defined_for_every_value(tested):
    for value in tested.domain(_circumstances()):
        assert math.isfinite(tested.caution(value)) and tested.caution(value) >= 0
        assert isinstance(tested.phrase(value), str)
    assert isinstance(tested.memory, MemoryEffect)


@every_knob
def test_every_value_trains(tested):
    """Applied alone, each value leaves a plan with which a step can be taken."""
    for value in tested.domain(_circumstances()):
        plan = Plan(device="cpu")
        tested.apply(value, plan)
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.LazyLinear(2))
        batch = torch.randn(2, 3, 8, 8)
        model(batch)
        for switch in plan.setup:
            switch()
        for transform in plan.model_transforms:
            model = transform(model)
        for transform in plan.batch_transforms:
            batch = transform(batch)
        with torch.autocast("cpu", enabled=False):
            pass
        contexts = [make() for make in plan.forward_contexts]
        for context in contexts:
            context.__enter__()
        loss = model(batch).float().mean()
        for context in reversed(contexts):
            context.__exit__(None, None, None)

        loss.backward()

        assert torch.isfinite(loss)
        assert plan.accumulation_steps >= 1


@every_knob
def test_it_can_be_pickled_because_it_holds_nothing(tested):
    assert type(pickle.loads(pickle.dumps(tested))) is type(tested)


class ToyKnob:
    """A knob that nobody has heard of: sets one loader option."""

    name, alias, label, ordered, default, memory = "toy", "toy", "toy", True, 1, MemoryEffect.NONE

    def domain(self, circumstances):
        return (1, 2, 3)

    def derive(self, values, circumstances):
        return None

    def check(self, value):
        if value not in (1, 2, 3):
            raise ValueError(f"toy must be 1, 2 or 3, got {value!r}")

    def parse(self, text):
        return int(text)

    def show(self, value):
        return f"t{value}"

    def phrase(self, value):
        return f"toy {value}"

    def caution(self, value):
        return 0.0

    def apply(self, value, plan):
        plan.loader_options["toy"] = value


def test_a_new_knob_is_one_registry_line(monkeypatch, tmp_path):
    """Space, guard, sampler, search, table and best.json all know it, and none was edited."""
    from autotune.launch.fake import FakeLauncher
    from autotune.report.blocks import best_block
    from autotune.tuning.reporter import SilentReporter
    from autotune.tuning.settings import Settings
    from autotune.tuning.tuner import search
    from autotune.tuning.view import load_view

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
    assert "toy" in str(best_block(found))


def test_the_accumulation_follows_from_a_held_global_batch():
    held = space(Goal(global_batch=96), config(batch_size=96))

    assert {c.global_batch_size() for c in held.configs} == {96}
    assert {c.batch_size for c in held.configs} >= {96, 48, 32}


@pytest.mark.parametrize(
    ("global_batch", "ladder"),
    [(64, (8, 16, 32, 64)), (96, (8, 12, 16, 24, 32, 48, 96)), (4, (4,)), (7, (7,))],
)
def test_micro_batches_divide_the_held_global_batch(global_batch, ladder):
    assert knob("batch_size").domain(_circumstances(global_batch=global_batch)) == ladder


def test_a_free_batch_is_a_power_of_two_within_the_dataset():
    assert knob("batch_size").domain(_circumstances()) == (8, 16, 32, 64, 128, 256)


def test_a_user_range_may_go_below_and_above_the_default_ladder():
    large = facts(dataset_samples=100_000)
    values = knob("batch_size").domain(_circumstances(facts=large, limit=Limit(low=2, high=8192)))

    assert values[0] == 2 and values[-1] == 8192


def test_workers_stop_at_the_usable_cores_unless_the_user_says_more():
    two_cores = environment(usable_cores=2)

    assert knob("num_workers").domain(_circumstances(environment=two_cores)) == (0, 1, 2)
    more = Limit(low=0, high=6)
    assert knob("num_workers").domain(_circumstances(environment=two_cores, limit=more)) == (0, 1, 2, 4, 6)


def test_synthetic_batches_have_no_workers_to_tune():
    assert knob("num_workers").domain(_circumstances(facts=facts(data="batch"))) == (0,)


def test_only_native_dtypes_are_offered_but_others_can_be_asked_for():
    old = environment(native_dtypes=())

    assert knob("amp_dtype").domain(_circumstances(environment=old)) == (None,)
    asked = Limit(values=("float16",))
    assert knob("amp_dtype").domain(_circumstances(environment=old, limit=asked)) == ("float16",)


def test_channels_last_needs_convolutions():
    assert knob("channels_last").domain(_circumstances(facts=facts(has_convolution=False))) == (False,)


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
