"""A limit under which large batches really die: the search lives, learns from it, and recommends what fits.

And what it recommends trains a whole epoch under that limit in a loop that knows nothing of autotune.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.commandline import briefly, listing, run_here

LIMIT_BYTES = (900 if torch.version.cuda is None else 1450) * 2**20  # what is built for CUDA is larger by that
WIDE = """\
import time
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
def loss(model, batch):
    time.sleep(0.02)  # what every step costs, however small: so the largest batch that fits is the fastest
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
baseline = {"batch_size": 4096}
space = {"batch_size": [8, 512, 2048, 4096], "amp_dtype": [None], "num_workers": [0], "num_threads": [None],
         "omp_wait_policy": [None], "malloc": [None], "compile_mode": [None]}
"""
PLAIN_LOOP = """\
import resource, sys
import torch
batch_size, limit_bytes = map(int, sys.argv[1:])
torch.ones(1 << 20).mul_(2).sum()  # OpenMP aborts if its threads find no memory for their stacks
resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, resource.getrlimit(resource.RLIMIT_DATA)[1]))
import wide
model = wide.model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
seen = 0
for batch in torch.utils.data.DataLoader(wide.dataset(), batch_size=batch_size, shuffle=True):
    wide.loss(model, batch).backward()
    optimizer.step()
    optimizer.zero_grad()
    seen += len(batch[0])
print(seen)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wide")
    (place / "wide.py").write_text(WIDE)
    return place


@pytest.fixture(scope="module")
def ended(home: Path) -> subprocess.CompletedProcess[str]:
    limit = ("--memory-limit", f"{LIMIT_BYTES // 2**20}MiB", "--global-batch", "free", "--fix", "accum=1")
    # One thread: several would wait for each other by spinning, beside other tests.
    with briefly():
        return run_here(home, "search", "wide.py", *limit, "-t", "5m", "-q", OMP_NUM_THREADS="1")


@pytest.fixture(scope="module")
def best(home: Path, ended: subprocess.CompletedProcess[str]) -> Any:
    assert ended.returncode == 0, ended.stderr
    return json.loads((home / "studies" / "wide" / "best.json").read_text())


def test_the_recommendation_runs_under_the_limit(best: Any) -> None:
    assert best["params"]["batch_size"] == 512
    assert best["peak_bytes"] <= LIMIT_BYTES
    assert best["memory_limit_bytes"] == LIMIT_BYTES
    assert best["headroom_fraction"] > 0


def _epoch(home: Path, batch_size: int) -> subprocess.CompletedProcess[str]:
    """One epoch of a plain loop under the limit."""
    words = (sys.executable, "-c", PLAIN_LOOP, str(batch_size), str(LIMIT_BYTES))
    return subprocess.run(words, cwd=home, capture_output=True, text=True, check=False)


def test_what_is_recommended_survives_a_whole_epoch_under_the_limit(home: Path, best: Any) -> None:
    epoch = _epoch(home, best["params"]["batch_size"])

    assert epoch.returncode == 0, epoch.stderr
    assert epoch.stdout == "4096\n"


def test_one_step_above_what_was_refused_a_plain_loop_dies_too(home: Path, best: Any) -> None:
    rows = json.loads(run_here(home, "show", "--failed", "--json").stdout)
    refused = min(row["trial"]["config"]["values"]["batch_size"] for row in rows)

    epoch = _epoch(home, 2 * refused)

    assert epoch.returncode != 0
    assert "can't allocate memory" in epoch.stderr


def test_a_baseline_that_died_is_no_yardstick(best: Any) -> None:
    assert best["speedup"] is None
    assert best["baseline_samples_per_second"] is None


def test_quiet_says_the_result_only_and_with_the_numbers_of_best_json(
    ended: subprocess.CompletedProcess[str], best: Any
) -> None:
    assert ended.stderr == ""
    assert "your baseline does not run here" in ended.stdout
    assert re.search(rf"batch_size +{best['params']['batch_size']}\b", ended.stdout)
    rate = ended.stdout.partition(" samples/s")[0].split()[-1]
    assert float(rate.replace(",", "")) == pytest.approx(best["samples_per_second"], rel=0.5)
    assert f"({best['headroom_fraction']:.0%} free)" in ended.stdout


def test_the_dead_probes_are_shown_as_out_of_memory_with_their_logs(home: Path, best: Any) -> None:
    before = listing(home)

    shown = run_here(home, "show", "--failed")
    rows = json.loads(run_here(home, "show", "--failed", "--json").stdout)

    assert before == listing(home)
    assert {row["trial"]["config"]["values"]["batch_size"] for row in rows} <= {2048, 4096}
    assert "out of memory" in shown.stdout
    for row in rows:
        result = row["trial"]["result"]
        # A window may end before the watch sees its peak: then what was measured tells that it does not fit.
        assert result["outcome"].startswith("oom") or result["measurement"]["memory"]["process_bytes"] > LIMIT_BYTES
        assert f"log of {row['trial']['number']}: {row['log']}" in shown.stdout
        assert (home / row["log"]).is_file()


def test_the_baseline_is_among_the_dead(home: Path, best: Any) -> None:
    first = json.loads(run_here(home, "show", "--json").stdout)[0]

    assert first["trial"]["purpose"] == "baseline"
    assert first["trial"]["result"]["outcome"].startswith("oom")
