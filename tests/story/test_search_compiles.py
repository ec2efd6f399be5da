"""A search where torch.compile gains, and takes a minute in a first probe."""

import pytest

from autotune.core.codes import Code
from autotune.core.records import Limit
from autotune.study.view import load_view
from autotune.testing import FakeLauncher, Machine
from tests.worlds import declared, environment, searched

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
