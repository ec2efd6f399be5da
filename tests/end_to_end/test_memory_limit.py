"""A limit under which large batches really die: the search lives, learns from it, and recommends what fits."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.commandline import listing, run

LIMIT_BYTES = 900 * 2**20
WIDE = """\
import torch
from torch import nn
from torch.utils.data import TensorDataset

class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(512, 64))  # 128 KiB a sample, kept several times for the backward pass
        self.head = nn.Linear(512, 2)
    def forward(self, x):
        return self.head((x[:, None, :] * self.weight).tanh().mean(-1))

def model(): return Wide()
def dataset(): return TensorDataset(torch.randn(4096, 64), torch.randint(2, (4096,)))
baseline = {"batch_size": 4096}
space = {"batch_size": [8, 2048, 4096], "amp_dtype": [None], "num_workers": [0]}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wide")
    (place / "wide.py").write_text(WIDE)
    return place


@pytest.fixture(scope="module")
def ended(home: Path) -> subprocess.CompletedProcess[str]:
    limit = ("--memory-limit", f"{LIMIT_BYTES // 2**20}MiB", "--global-batch", "free", "--fix", "accum=1")
    return run(home, "search", "wide.py", *limit, "-t", "90s", "-q")


@pytest.fixture(scope="module")
def best(home: Path, ended: subprocess.CompletedProcess[str]) -> Any:
    assert ended.returncode == 0, ended.stderr
    return json.loads((home / "studies" / "wide" / "best.json").read_text())


def test_the_recommendation_runs_under_the_limit(best: Any) -> None:
    assert best["params"]["batch_size"] == 8
    assert best["peak_bytes"] <= LIMIT_BYTES
    assert best["memory_limit_bytes"] == LIMIT_BYTES
    assert best["headroom_fraction"] > 0


def test_a_baseline_that_died_is_no_yardstick(best: Any) -> None:
    assert best["speedup"] is None
    assert best["baseline_samples_per_second"] is None


def test_quiet_says_the_result_only_and_with_the_numbers_of_best_json(
    ended: subprocess.CompletedProcess[str], best: Any
) -> None:
    assert ended.stderr == ""
    assert "Recommended" in ended.stdout
    assert f"batch_size {best['params']['batch_size']} ×" in ended.stdout
    rate = ended.stdout.partition(" samples/s")[0].split()[-1]
    assert float(rate.replace(",", "")) == pytest.approx(best["samples_per_second"], rel=0.5)
    assert f"({best['headroom_fraction']:.0%} free)" in ended.stdout


def test_the_dead_probes_are_shown_as_out_of_memory_with_their_logs(home: Path, best: Any) -> None:
    before = listing(home)

    shown = run(home, "show", "--failed")
    rows = json.loads(run(home, "show", "--failed", "--json").stdout)

    assert before == listing(home)
    assert {row["trial"]["config"]["values"]["batch_size"] for row in rows} <= {2048, 4096}
    assert "out of memory" in shown.stdout
    for row in rows:
        assert row["trial"]["result"]["outcome"].startswith("oom")
        assert f"log of {row['trial']['number']}: {row['log']}" in shown.stdout
        assert (home / row["log"]).is_file()


def test_the_baseline_is_among_the_dead(home: Path, best: Any) -> None:
    first = json.loads(run(home, "show", "--json").stdout)[0]

    assert first["trial"]["purpose"] == "baseline"
    assert first["trial"]["result"]["outcome"].startswith("oom")
