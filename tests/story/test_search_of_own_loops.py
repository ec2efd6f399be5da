"""A target that trains by a loop of its own is searched with what can be measured of it, and what cannot is said."""

import pytest

from autotune.core.codes import Code
from autotune.errors import UsageError
from autotune.memory.records import ShapeRunRequest
from autotune.study import disk
from autotune.testing import FakeLauncher
from tests.worlds import Listener, facts, searched


@pytest.fixture
def launcher():
    return FakeLauncher(facts=facts(baseline={"batch_size": 64}, owns_loop=True))


def test_it_finds_a_faster_configuration_without_computing_and_loading_apart(tmp_path, launcher):
    found = searched(tmp_path, launcher, sampler="structured", time_budget_seconds=600)

    assert found.speedup > 1.2
    assert disk.attempts(tmp_path, ShapeRunRequest.kind()) == ()
    for trial in disk.read_trials(tmp_path):
        assert trial.result.measurement is None or trial.result.measurement.compute_only is None


def test_what_is_not_measured_is_a_detail(tmp_path, launcher):
    listener = Listener()

    searched(tmp_path, launcher, listener, time_budget_seconds=100)

    assert Code.LOOP_ONLY_OBSERVED.sentence not in "\n".join(listener.lines)
    assert Code.LOOP_ONLY_OBSERVED.sentence[1:] in "\n".join(listener.notes)


def test_gradients_of_single_micro_batches_are_refused_at_once(tmp_path, launcher):
    with pytest.raises(UsageError, match="only observed"):
        searched(tmp_path, launcher, objective="time-to-quality", global_batch="free")
