"""The real command while other processes hold every core."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.study import disk
from autotune.study.valid_probes import is_spoiled
from autotune.tuning.baseline import GOES_ON
from tests import commandline
from tests.end_to_end.conftest import SEARCH

# Knows a baseline as every search does.
DOUBTFUL = (sys.executable, "-c", commandline.brief(commandline.BRIEFLY, commandline.TWO_ROUNDS))
COMPUTES = """
import sys, time
from pathlib import Path
while not list(Path(sys.argv[1]).glob("studies/*/probes/*")): time.sleep(0.01)
while True: pass
"""


@pytest.fixture
def other_work(home: Path) -> Iterator[None]:
    """One process for each core, which does nothing but compute from the first probe on."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    computing = [subprocess.Popen((sys.executable, "-c", COMPUTES, str(home))) for _ in range(count)]
    yield
    for process in computing:
        process.kill()
        process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how long a thread waited for a core")
def test_on_a_busy_machine_the_baseline_is_measured_again_and_the_search_goes_on_to_an_answer(
    home: Path, other_work: None
) -> None:
    ended = commandline.run(home, *SEARCH, "-n", "1", program=DOUBTFUL)

    study = home / "studies" / "model"
    first, second = disk.read_trials(study)[:2]
    assert [first.purpose, second.purpose] == ["baseline", "baseline"]
    assert is_spoiled(first.result)
    assert "The baseline is measured again." in ended.stderr
    assert ended.returncode == 0
    assert (study / disk.BEST).exists()
    assert (GOES_ON in ended.stderr) is ("Other work on this machine interferes" in ended.stderr)
