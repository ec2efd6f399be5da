"""What every knob must do; a new one is tested by being registered."""

import ast
import math
import pickle
import sys

import msgspec
import pytest
import torch

from autotune.knobs import KNOBS, defaults, environ, knob
from autotune.knobs.base import Circumstances, Knob, MemoryEffect, Plan
from autotune.knobs.influence import Factor
from autotune.knobs.wording import Framework
from autotune.records import Goal, Limit
from tests.worlds import config, environment, facts, space

every_knob = pytest.mark.parametrize("tested", KNOBS, ids=lambda k: k.name)
SMALL = facts(dataset_samples=300, checkpointable_blocks=12)
CPU = environment(device="cpu", device_name="Fake CPU", usable_cores=6, default_threads=6)
everywhere = pytest.mark.parametrize("here", [environment(), CPU], ids=["gpu", "cpu"])


def _circumstances(**changes):
    given = {"facts": SMALL, "environment": environment(), "global_batch": None, **changes}
    return Circumstances(**given)


@everywhere
@every_knob
def test_its_domain_is_finite_without_repetition_and_checked(tested, here):
    values = tested.domain(_circumstances(environment=here))

    assert 1 <= len(values) < 100
    assert len({repr(value) for value in values}) == len(values)
    for value in values:
        tested.check(value)


@everywhere
@every_knob
def test_an_ordered_domain_ascends(tested, here):
    circumstances = _circumstances(environment=here)

    if tested.ordered:
        ranks = [tested.rank(value, circumstances) for value in tested.domain(circumstances)]
        assert ranks == sorted(set(ranks))


@everywhere
@every_knob
def test_the_values_of_its_domain_do_different_things(tested, here):
    circumstances = _circumstances(environment=here)
    domain = tested.domain(circumstances)

    written = [tested.canonical(defaults() | {tested.name: value}, circumstances) for value in domain]

    assert written == list(domain)


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


@everywhere
@every_knob
def test_what_it_shows_differs_between_values_and_is_short(tested, here):
    shown = [tested.show(value) for value in tested.domain(_circumstances(environment=here))]

    assert len(set(shown)) == len(shown)
    assert max(map(len, shown)) <= 9
    assert len(tested.label) <= 9


@everywhere
@every_knob
def test_its_values_survive_json_and_typing(tested, here):
    for value in tested.domain(_circumstances(environment=here)):
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


@everywhere
@every_knob
def test_caution_and_phrase_are_defined_for_every_value(tested, here):
    for value in tested.domain(_circumstances(environment=here)):
        assert all(isinstance(text, str) for text in tested.environ(value).values())
        assert math.isfinite(tested.caution(value)) and tested.caution(value) >= 0
        assert isinstance(tested.phrase(value), str)
    assert isinstance(tested.memory, MemoryEffect)


@pytest.fixture
def threads():
    """Torch's thread count is given back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@everywhere
@every_knob
def test_what_it_expects_of_a_value_are_factors_against_a_known_one(tested, here):
    values = tested.domain(_circumstances(environment=here))

    for value in values:
        said = tested.influence(value)
        factors = [factor for factor in vars(said).values() if isinstance(factor, Factor)]
        assert len(factors) == 6
        assert all(0.1 < factor.center < 10 and 0 <= factor.spread < 2 for factor in factors)
        assert said.relative_to is None or said.relative_to in values[: values.index(value)]


@everywhere
@every_knob
def test_of_threads_it_says_a_count_or_nothing(tested, here):
    said = {tested.computing_threads(value, 4) for value in tested.domain(_circumstances(environment=here))}

    assert said == {None} or all(isinstance(count, int) and count >= 1 for count in said)


@everywhere
@every_knob
def test_every_value_trains(tested, here, threads):
    """Applied alone, each value leaves a plan with which a step can be taken."""
    for value in tested.domain(_circumstances(environment=here)):
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


@pytest.mark.parametrize("framework", Framework)
@everywhere
@every_knob
def test_whatever_it_changes_every_framework_is_told(tested, here, framework):
    for value in tested.domain(_circumstances(environment=here)):
        plan = Plan(device=here.device_kind)
        tested.apply(value, plan)
        said = tested.wording(value, framework, here.device_kind)

        for statement in (*said.setup, *said.model, *(f"part.{method}" for method in said.images)):
            ast.parse(statement)
        assert bool(said.images) == bool(plan.batch_transforms)
        assert bool(said.model) == bool(plan.model_transforms)
        if plan.forward_contexts:
            assert said.context or said.arguments
        if value == tested.default:
            assert (said.setup, said.model, said.images, said.context, said.scaler) == ((), (), (), "", False)


@every_knob
def test_it_can_be_pickled_because_it_holds_nothing(tested):
    assert type(pickle.loads(pickle.dumps(tested))) is type(tested)


class ToyKnob(Knob):
    """A knob that nobody has heard of: sets one loader option."""

    name, alias, label, ordered, default, memory = "toy", "toy", "toy", True, 1, MemoryEffect.NONE

    def domain(self, circumstances):
        return (1, 2, 3)

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
    from autotune.tuning.engine import search
    from autotune.tuning.reporter import SilentReporter
    from autotune.tuning.settings import Settings
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
    [
        (64, (8, 16, 32, 64)),
        (240, (8, 15, 16, 24, 30, 40, 48, 60, 80, 120, 240)),
        (96, (8, 12, 16, 24, 32, 48, 96)),
        (4, (4,)),
        (7, (7,)),
    ],
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


@pytest.mark.parametrize(("blocks", "domain"), [(0, (False,)), (1, (False,)), (2, (False, True))])
def test_checkpointing_needs_several_blocks(blocks, domain):
    here = _circumstances(facts=facts(checkpointable_blocks=blocks))

    assert knob("activation_checkpointing").domain(here) == domain


def test_only_checkpointing_trades_time_for_memory():
    trading = [
        (tested.name, value)
        for tested in KNOBS
        for value in tested.domain(_circumstances())
        if tested.influence(value).trades_time_for_memory
    ]

    assert trading == [("activation_checkpointing", True)]


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
    return knob("num_threads").domain(_circumstances(environment=machine, limit=limit))


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

    assert knob("omp_wait_policy").domain(_circumstances(environment=machine)) == domain


def test_without_a_loader_nobody_competes_with_waiting_threads():
    lonely = _circumstances(environment=CPU, facts=facts(data="batch"))

    assert knob("omp_wait_policy").domain(lonely) == (None,)


def test_only_what_is_set_goes_into_the_environment():
    assert environ(defaults()) == {}
    assert environ({"omp_wait_policy": "passive"}) == {"OMP_WAIT_POLICY": "passive"}
