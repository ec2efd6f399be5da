"""A search where torch.compile gains, and takes a minute in a first probe."""

import pytest

from autotune.core.codes import Code
from autotune.core.records import Goal, Limit
from autotune.study.view import load_view
from autotune.testing import FACTS, FakeLauncher, Machine
from tests.worlds import config, context, declared, environment, facts, measured, searched, study_request, trial

MODES = Limit(values=(None, "default"))
MINUTE = 60.0


def story(folder, seconds, factor=0.5, **settings):
    """Search where computing is nearly all; return the answer, the configurations that were probed, the seconds."""
    machine = Machine(compiled_factor=factor, compiling_seconds=MINUTE, sample_loading_seconds=1e-5)
    launcher = FakeLauncher(machine=machine, environment=environment(no_compiler=""), facts=declared())
    found = searched(
        folder, launcher, time_budget_seconds=seconds, sampler="structured", limits={"compile_mode": MODES}, **settings
    )
    return found, [trial.config for trial in load_view(folder).trials], launcher.clock()


def test_a_minute_is_too_short_to_compile(tmp_path):
    _, probed, _ = story(tmp_path / "study", MINUTE)

    assert len(probed) > 2
    assert {config["compile_mode"] for config in probed} == {None}


def test_ten_minutes_are_long_enough_and_are_kept(tmp_path):
    found, _, seconds = story(tmp_path / "study", 10 * MINUTE)

    assert found.params["compile_mode"] == "default"
    assert seconds <= 1.1 * 10 * MINUTE
    costs = next(one for one in found.reasons if one.code is Code.COMPILING)
    assert costs.numbers["cold_seconds"] == MINUTE
    assert costs.numbers["warm_seconds"] == pytest.approx(0.1 * MINUTE)
    assert costs.numbers["pays_seconds"] > MINUTE


@pytest.mark.parametrize(("run_length", "mode"), [("2m", None), ("12h", "default"), ("1epoch", None)])
def test_a_planned_run_decides_whether_it_is_long_enough(tmp_path, run_length, mode):
    found, _, _ = story(tmp_path / "study", 20 * MINUTE, run_length=run_length)

    assert found.params["compile_mode"] == mode


def test_what_compiling_slows_is_not_recommended(tmp_path):
    found, _, _ = story(tmp_path / "study", 10 * MINUTE, factor=1.3)

    assert found.params["compile_mode"] is None
    assert not any(one.code is Code.COMPILING for one in found.reasons)


def on_cores(folder, seconds, **settings):
    """Search on a CPU where compiling gains, unasked; return the modes that were probed."""
    machine = Machine(
        compiled_factor=0.8, compiling_seconds=45.0, sample_loading_seconds=1e-5, fixed_seconds={None: 1e-4}
    )
    held = {**FACTS.space, "amp_dtype": Limit(values=(None,)), "activation_checkpointing": Limit(values=(False,))}
    there = environment(no_compiler="", device="cpu", usable_cores=4, default_threads=4, capability=None)
    launcher = FakeLauncher(machine=machine, environment=there, facts=facts(space=held, baseline={"batch_size": 64}))
    searched(folder, launcher, time_budget_seconds=seconds, sampler="structured", **settings)
    return {trial.config["compile_mode"] for trial in load_view(folder).trials}


def test_on_a_cpu_two_minutes_do_not_try_it_and_ten_do(tmp_path):
    assert on_cores(tmp_path / "two", 2 * MINUTE) == {None}
    assert on_cores(tmp_path / "ten", 10 * MINUTE) == {None, "default"}


@pytest.mark.parametrize(
    ("seconds", "settings", "may"),
    [
        (2 * MINUTE, {}, False),
        (10 * MINUTE, {}, True),
        (2 * MINUTE, {"run_length": "12h"}, True),
        (2 * MINUTE, {"run_length": "2m"}, False),
        (2 * MINUTE, {"run_length": "1000epochs"}, True),
        (2 * MINUTE, {"limits": {"compile_mode": MODES}}, True),
        (2 * MINUTE, {"tune": ("compile_mode",)}, True),
    ],
)
def test_on_a_cpu_compiling_takes_a_tenth_of_the_time_unless_the_run_or_the_user_says_otherwise(
    tmp_path, seconds, settings, may
):
    request = study_request(goal=Goal(global_batch=64, **settings), environment=environment(device="cpu"))
    there = context(
        tmp_path, request=request, trials=[trial(measured(), purpose="baseline")], time_budget_seconds=seconds
    )

    assert there.time_guard.may_compile(config(compile_mode="default")) is may
    assert there.time_guard.may_compile(config())


def test_on_a_gpu_it_is_left_to_what_it_may_gain(tmp_path):
    there = context(tmp_path, trials=[trial(measured(), purpose="baseline")], time_budget_seconds=MINUTE)

    assert there.time_guard.may_compile(config(compile_mode="default"))
