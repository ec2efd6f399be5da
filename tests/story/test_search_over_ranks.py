"""A search over ranks knows what accumulation saves of the exchange of gradients, and verifies it once."""

import pytest

from autotune.core.codes import Code
from autotune.core.records import Limit
from autotune.testing import FakeLauncher, Machine
from tests.worlds import Listener, facts, searched

EXCHANGING = Machine(exchange_seconds=0.03, sample_loading_seconds=1e-6)  # as long as four micro-batches of 4
OF_TWO_RANKS = facts(baseline={"batch_size": 16, "gradient_accumulation_steps": 8}, ranks=2)
SEARCHED = {
    "tune": ("batch_size", "gradient_accumulation_steps"), "limits": {"batch_size": Limit(values=(4, 8, 16))},
    "sampler": "random", "time_budget_seconds": 1e6,
}  # fmt: skip


def test_short_cycles_tell_the_rate_of_full_ones_and_the_confirmation_verifies_it(tmp_path):
    listener, launcher = Listener(), FakeLauncher(machine=EXCHANGING, facts=OF_TWO_RANKS)

    answer = searched(tmp_path, launcher, listener, **SEARCHED)

    probes = [(trial.config, trial.result.measurement) for trial in listener.trials]
    short = [(launcher.throughput(one), found.samples_per_second) for one, found in probes if found.cycle_ratio > 1]
    assert len(short) >= 2
    assert [told for _, told in short] == pytest.approx([truth for truth, _ in short], rel=0.05)
    (verified,) = [one for one in answer.reasons if one.code is Code.ACCUMULATION_PREDICTED]
    assert max(verified.figure("less"), verified.figure("more")) < 0.03
