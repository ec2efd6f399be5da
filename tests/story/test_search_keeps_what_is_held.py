"""Stories of baselines that break what the user holds or allows: they are measured, and never recommended."""

import pytest

from autotune.core.codes import Code
from autotune.core.notices import notice
from autotune.core.records import Limit
from autotune.testing import FakeLauncher, Machine
from tests.worlds import Listener, config, declared, searched

LOADER_BOUND = Machine(sample_loading_seconds=0.05, cores=1)  # nothing that may be searched makes it faster


@pytest.mark.parametrize(
    ("baseline", "settings", "kept"),
    [
        (
            {"num_workers": 1},
            {"global_batch": 256},
            config(batch_size=64, gradient_accumulation_steps=4, num_workers=1),
        ),
        (
            {"num_workers": 1, "gradient_accumulation_steps": 1},
            {"global_batch": 256},
            config(batch_size=64, gradient_accumulation_steps=4, num_workers=1),
        ),
        (
            {"num_workers": 1, "amp_dtype": "bfloat16"},
            {"limits": {"amp_dtype": Limit(values=(None,))}},
            config(batch_size=64, num_workers=1),
        ),
        (
            {"num_workers": 1},
            {"global_batch": "free", "limits": {"batch_size": Limit(values=(8, 16))}},
            config(batch_size=8, num_workers=1),  # of equals the smallest global batch
        ),
        ({"num_workers": 1}, {"limits": {"num_workers": Limit(values=(0,))}}, config(batch_size=64)),
    ],
)
def test_where_nothing_is_faster_the_answer_changes_only_what_it_has_to(tmp_path, baseline, settings, kept):
    listener, launcher = Listener(), FakeLauncher(machine=LOADER_BOUND, facts=declared(**baseline))

    answer = searched(tmp_path, launcher, listener, sampler="structured", **settings)

    assert answer.params == kept.values
    is_excluded = answer.baseline != kept.values
    told = [other.reason for other in answer.runners_up if other.config.values == answer.baseline]
    assert any(reason.code is Code.MEASURED_FOR_COMPARISON for reason in told) is is_excluded
    assert any("(for comparison only: its " in line for line in listener.lines) is is_excluded


def test_a_target_that_is_faster_than_what_is_allowed_is_told_as_such(tmp_path):
    launcher = FakeLauncher(facts=declared(amp_dtype="bfloat16", num_workers=8, channels_last=True))

    answer = searched(tmp_path, launcher, limits={"amp_dtype": Limit(values=(None,))}, probes=10)

    assert answer.params["amp_dtype"] is None
    assert answer.speedup < 1
    (told,) = [other.reason for other in answer.runners_up if other.config.values == answer.baseline]
    why = notice(Code.VALUE_NOT_SEARCHED, knob="amp_dtype", value="bf16", searched=("fp32",))
    assert told == notice(Code.MEASURED_FOR_COMPARISON, why=why)
