"""Values that are asked for and do nothing here, or cannot be had: said before a probe, and carried by no answer."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.core.codes import Code
from autotune.core.notices import notice
from autotune.core.records import Goal, Limit, OptimizerFacts, Value
from autotune.errors import UsageError
from autotune.knobs import KNOBS, knob
from autotune.knobs.base import Knob
from autotune.sampler.idle import idle_notices
from autotune.sampler.space import SearchSpace
from autotune.testing.knob_contract import CPU
from autotune.testing.machine import ENVIRONMENT
from tests.worlds import config, environment, facts, space

NO_ATTENTION = {"calls_attention": False}
FLASH = {"attention": {"float32": (), "bfloat16": ("math",)}, "calls_attention": True}
SGD = OptimizerFacts(names=("Rprop",), usual="for-loop", possible=("for-loop", "foreach"), step_share=0.2)
OWN_LOADER = {"data": "dataloader", "takes_workers": False, "loader_options": ()}
RANKS = {"ranks": 2, "exposed_communication": 0.3}
IDLE: list[tuple[str, Value, dict[str, Any], Any, dict[str, Value], str]] = [
    # knob, value, facts, environment, values of other knobs, why
    ("num_workers", 2, {"data": "batch"}, CPU, {}, "the batches are synthetic"),
    ("num_workers", 2, OWN_LOADER, CPU, {}, "dataloader() takes no num_workers"),
    ("channels_last", True, {"has_convolution": False}, CPU, {}, "no two-dimensional convolutions"),
    ("activation_checkpointing", True, {}, CPU, {}, "the model has no repeated blocks"),
    ("activation_checkpointing", "every_second", {}, CPU, {}, "the model has no repeated blocks"),
    ("activation_checkpointing", "selective", {}, ENVIRONMENT, {}, "the model has no repeated blocks"),
    ("activation_memory_budget", 0.5, {}, ENVIRONMENT, {"compile_mode": None}, "only compiled graphs have a budget"),
    (
        "activation_memory_budget",
        0.5,
        {"found": {"activation_memory_budget": 0.25}},
        ENVIRONMENT,
        {"compile_mode": "default"},
        "your code sets it",
    ),
    ("compile_mode", "default", {"compiles_model": True}, CPU, {}, "your code compiles the model itself"),
    ("omp_wait_policy", "passive", {}, CPU, {"num_threads": 1}, "a single thread waits for no other"),
    ("tf32", True, {}, CPU, {}, "only CUDA devices of capability 8.0"),
    ("tf32", True, {}, environment(capability="7.5"), {}, "only CUDA devices of capability 8.0"),
    ("tf32", True, {}, ENVIRONMENT, {"amp_dtype": "bfloat16"}, "autocast leaves no float32 products"),
    ("tf32", False, {"found": {"tf32": True}}, ENVIRONMENT, {}, "your code sets it"),
    ("cudnn_benchmark", True, {}, CPU, {}, "only CUDA devices have cuDNN"),
    ("cudnn_benchmark", False, {"found": {"cudnn_benchmark": True}}, ENVIRONMENT, {}, "your code sets it"),
    ("sdpa_backend", "flash", NO_ATTENTION, CPU, {}, "no step calls scaled_dot_product_attention"),
    ("sdpa_backend", "flash", NO_ATTENTION, ENVIRONMENT, {}, "no step calls scaled_dot_product_attention"),
    ("sdpa_backend", "math", FLASH, CPU, {"amp_dtype": None}, "in float32 torch's own choice is the fastest"),
    ("sdpa_backend", "flash", FLASH, CPU, {"amp_dtype": "bfloat16"}, "in bfloat16 torch takes it anyway"),
    ("sdpa_backend", "flash", {"found": {"sdpa_backend": "math"}}, CPU, {}, "your code sets it"),
    ("prefetch_factor", 4, {}, CPU, {"num_workers": 0}, "there are no loader workers"),
    ("prefetch_factor", 4, OWN_LOADER, CPU, {}, "dataloader() takes no prefetch_factor"),
    ("persistent_workers", False, {}, CPU, {"num_workers": 0}, "there are no loader workers"),
    ("pin_memory", True, {}, CPU, {}, "only CUDA copies faster"),
    ("pin_memory", True, OWN_LOADER, ENVIRONMENT, {}, "dataloader() takes no pin_memory"),
    ("allocator", "expandable_segments", {}, CPU, {}, "only CUDA devices have that allocator"),
    ("strategy", "fsdp", {}, CPU, {}, "one rank trains alone"),
    ("bucket_cap_mb", 50, {}, CPU, {}, "one rank trains alone"),
    ("bucket_cap_mb", 50, RANKS, CPU, {"strategy": "fsdp"}, "DistributedDataParallel is not used"),
    ("gradient_as_bucket_view", True, {}, CPU, {}, "one rank trains alone"),
    ("static_graph", True, {}, CPU, {}, "one rank trains alone"),
]
ALIKE = [
    ("compile_mode", "reduce-overhead", {}, CPU, {}, "default", "no graphs of launches without CUDA"),
    ("compile_mode", "regional", {}, CPU, {}, "default", "the model has no repeated blocks"),
    ("activation_checkpointing", "selective", {"checkpointable_blocks": 12}, CPU, {"compile_mode": "default"}, True,
     "compiled blocks are recomputed as a whole"),
]  # fmt: skip


def _limits(name: str, value: Value, others: dict[str, Value]) -> dict[str, Limit]:
    return {one: Limit(values=(it,)) for one, it in {**others, name: value}.items()}


def _told(made: SearchSpace, limits: dict[str, Limit], **declared: Value) -> list[str]:
    baseline = made.canonical(config(**{"batch_size": 64, **declared}))
    found = idle_notices(made, limits, declared, baseline)
    return [one.text for notices in found.values() for one in notices]


@pytest.mark.parametrize(("name", "value", "of", "on", "others", "why"), IDLE)
@pytest.mark.parametrize("where", ["goal", "space"])
def test_an_idle_value_is_said_and_no_configuration_has_it(name, value, of, on, others, why, where):
    limits = _limits(name, value, others)
    target = facts(**{"space": limits if where == "space" else {}, **of})
    usual = knob(name).left_alone(target)

    made = space(Goal(limits=limits if where == "goal" else {}), of=target, on=on)

    (line,) = _told(made, limits)
    assert line.startswith(f"{knob(name).alias}=") and " does nothing here: " in line
    assert why in line
    assert made.configs.values(name) == made.domains[name] == (usual,)


@pytest.mark.parametrize(("name", "value", "of", "on", "others", "why"), IDLE)
def test_an_idle_value_of_the_baseline_is_said_too(name, value, of, on, others, why):
    target = facts(**{"space": {}, **of})

    baseline = config(batch_size=64, **{**others, name: value})

    made = space(Goal(limits=_limits("batch_size", 64, {})), baseline, target, on)

    lines = [line for line in _told(made, {}, **others, **{name: value}) if line.startswith(f"{knob(name).alias}=")]
    assert lines == [f"{knob(name).alias}={str(value).lower()} in the baseline does nothing here: {_why(lines)}"]
    assert why in lines[0]
    assert made.canonical(baseline)[name] == knob(name).left_alone(target)


def _why(lines: list[str]) -> str:
    return lines[0].partition("here: ")[2] if lines else ""


@pytest.mark.parametrize(("name", "value", "of", "on", "others", "same", "why"), ALIKE)
def test_a_value_that_does_what_another_does_is_said_to(name, value, of, on, others, same, why):
    limits = _limits(name, value, others)

    made = space(Goal(limits=limits), of=facts(**{"space": {}, **of}), on=on)

    (line,) = _told(made, limits)
    assert f"does the same as {str(same).lower()} here: " in line
    assert why in line
    assert made.configs.values(name) == made.domains[name] == (same,)


def test_every_knob_that_can_be_idle_is_idle_somewhere():
    assert {name for name, *_ in (*IDLE, *ALIKE)} == {one.name for one in KNOBS if type(one).idle is not Knob.idle}


def test_nothing_is_said_of_what_does_something_in_some_configuration_or_is_already_so():
    limits = {"prefetch_factor": Limit(values=(2, 4)), "persistent_workers": Limit(values=(True,))}
    limits["num_threads"] = Limit(values=(CPU.default_threads,))

    assert _told(space(Goal(limits=limits), of=facts(space={}), on=CPU), limits) == []


def test_what_a_command_has_today_is_not_said_to_do_nothing():
    today = {"pin_memory": True, "activation_checkpointing": True, "num_workers": 2}
    program = facts(space={}, owns_loop=True, is_program=True, data="batch", baseline=today)

    made = space(Goal(), config(batch_size=64, **today), program, CPU)

    assert _told(made, {}, **today) == []
    assert {one["pin_memory"] for one in made.configs} == {True}


def test_several_values_that_do_nothing_for_one_reason_are_one_line():
    limits = {"activation_checkpointing": Limit(values=("every_third", "selective", True))}

    (line,) = _told(space(Goal(limits=limits), of=facts(space={})), limits)

    assert line.startswith("checkpointing=every_third, checkpointing=selective, checkpointing=true do nothing here: ")


def test_a_program_reads_which_values_of_which_knob_do_nothing_and_why():
    limits = {"sdpa_backend": Limit(values=("flash", "math"))}
    made = space(Goal(limits=limits), of=facts(space={}, **NO_ATTENTION))

    found = idle_notices(made, limits, {}, config(batch_size=64))

    why = "no step calls scaled_dot_product_attention"
    said = notice(Code.VALUES_IDLE, knob="sdpa_backend", values=("sdpa=flash", "sdpa=math"), why=why)
    assert found == {"sdpa_backend": [said]}


NONE_HERE = environment(no_compiler="there is no compiler", mallocs=("glibc",))
LACKING = [
    ("compile_mode", "default", {}, "there is no compiler"),
    ("malloc", "tcmalloc", {}, "libtcmalloc_minimal.so.4 is not installed"),
    ("fused_optimizer", "fused", {"optimizer": SGD}, "Rprop has no such update in torch"),
]


@pytest.mark.parametrize(("name", "value", "of", "why"), LACKING)
def test_what_cannot_be_had_is_one_clear_error_where_nothing_else_was_asked_for(name, value, of, why):
    target = facts(space={}, **of)

    with pytest.raises(UsageError, match=f"{knob(name).alias}={value} is not possible here: .*{why}.* Change it in --"):
        space(Goal(limits={name: Limit(values=(value,))}), of=target, on=NONE_HERE)
    with pytest.raises(UsageError, match=f"{why}.* Change it in --baseline"):
        space(Goal(), config(batch_size=64, **{name: value}), target, NONE_HERE)


@pytest.mark.parametrize(("name", "value", "of", "why"), LACKING)
def test_beside_other_values_it_is_left_out_and_said(name, value, of, why):
    limits = {name: Limit(values=(None, value))}

    made = space(Goal(limits=limits), of=facts(space={}, **of), on=NONE_HERE)

    assert made.domains[name] == (None,)
    assert _told(made, limits) == [f"{knob(name).alias}={value} not tried: {_reason(made, name, value)}"]
    assert why in _reason(made, name, value)


def _reason(made: SearchSpace, name: str, value: Value) -> str:
    return knob(name).lacking(value, made.circumstances)


def test_what_the_users_own_code_compiles_has_a_budget():
    limits = {"activation_memory_budget": Limit(values=(0.5,)), "compile_mode": Limit(values=(None,))}

    made = space(Goal(limits=limits), of=facts(space={}, compiles_itself=True))

    assert _told(made, limits) == []
    assert {one["activation_memory_budget"] for one in made.configs} == {0.5}


def test_what_the_code_has_can_be_asked_for_whatever_it_has():
    own = facts(space={}, optimizer=SGD, found={"fused_optimizer": "foreach"})

    made = space(Goal(limits={"fused_optimizer": Limit(values=(None,))}), of=own, on=CPU)

    assert {one["fused_optimizer"] for one in made.configs} == {"foreach"}
