"""The ranks that a probe starts itself."""

from pathlib import Path

import pytest

from autotune.child.ranks.rank_processes import VISIBLE_DEVICES, LocalRanks
from autotune.core.requests import ProbeRequest
from autotune.errors import EnvironmentUnfit
from tests.worlds import config


def test_fewer_gpus_than_ranks_are_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE_DEVICES, "0")
    request = ProbeRequest(target="model.py", config=config(), device="cuda", ranks=2)

    with pytest.raises(EnvironmentUnfit, match=f"2 ranks need as many GPUs, and {VISIBLE_DEVICES} shows 1: 0"):
        LocalRanks(request, tmp_path, lambda folder: pytest.fail("a rank was started")).start()
