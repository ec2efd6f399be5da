"""Real compilations in real probes: counted, cold and warm, inside the window and out of it."""

import shutil
from contextlib import chdir
from pathlib import Path

import pytest

from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome
from tests.child.test_probe import SHORT
from tests.targets_support import HEAD
from tests.worlds import config

pytestmark = [
    pytest.mark.slow,  # a minute: compiles C++
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler is installed"),
]

DATA = """
def dataset():
    return torch.utils.data.TensorDataset(torch.randn(256, 8), torch.randn(256, 4))
"""
TARGETS = {
    "plain": HEAD + DATA + """
def model():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
""",
    "breaking": HEAD + DATA + """
class Net(nn.Linear):
    def forward(self, x):
        found = super().forward(x)
        return found * float(found.sum().item() < 1e9)

def model():
    return Net(8, 4)
""",
    "changing": HEAD + DATA + """
import time

calls = 0

class Net(nn.Linear):
    def forward(self, x, text):
        return super().forward(x) * (1 + len(text))

def model():
    return Net(8, 4)

def loss(model, batch):
    global calls
    calls += 1
    time.sleep(0.02)
    return model(batch[0], "x" * (calls // 8)).square().mean()  # every eighth step is traced anew
""",
    "elsewhere": HEAD + DATA + """
class Net(nn.Linear):
    def encode(self, x):
        return nn.functional.linear(x, self.weight)

def model():
    return Net(8, 4)

def loss(model, batch):
    return model.encode(batch[0]).square().mean()
""",
}  # fmt: skip


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A folder whose probes share a cache."""
    return tmp_path_factory.mktemp("study")


@pytest.fixture
def probe(forking_launcher, study, monkeypatch):
    """`probe(target, **values)`: one probe in that folder."""
    monkeypatch.delenv("CXX")  # that of tests is none
    # Vector instructions have long headers, and torch compiles and loads a trial of each kind before the first graph.
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "0")

    def probed(target, **values):
        (study / f"{target}.py").write_text(TARGETS[target])
        place = study / "probes" / f"{len(list((study / 'probes').glob('*'))):04}"
        place.mkdir(parents=True)
        asked = ProbeRequest(
            target=f"{target}.py", config=config(batch_size=16, **values), device="cpu", budget=SHORT, seed=1
        )
        with chdir(study):
            found = forking_launcher.run(asked, place)
        assert found.outcome is Outcome.OK, found.failure
        return found

    return probed


def test_compiling_is_told_apart_cold_and_warm(probe, study):
    temporary = set(Path("/tmp").glob("torchinductor*/*"))

    plain, cold, warm = probe("plain"), *(probe("plain", compile_mode="default") for _ in range(2))

    assert plain.measurement.compilation is None
    seen = cold.measurement.compilation
    assert (seen.frames, seen.graphs, seen.graph_breaks, seen.recompilations) == (1, 1, 0, 0)
    assert seen.frames_in_window == 0
    assert seen.is_cold
    again = warm.measurement.compilation
    assert not again.is_cold
    assert again.cache_hits > 0
    assert 0 < again.seconds < seen.seconds < cold.measurement.warmup_seconds[0]
    assert (cold.isolation, warm.isolation) == ("fork", "fork")
    assert (study / "compiled").is_dir()
    assert set(Path("/tmp").glob("torchinductor*/*")) == temporary  # nothing is written outside the study


def test_what_is_compiled_learns_the_same_up_to_rounding(probe):
    plain, compiled = (probe("plain", compile_mode=mode).measurement for mode in (None, "default"))

    steps = min(len(plain.warmup_seconds), len(compiled.warmup_seconds))  # after these they are told of in blocks
    assert steps >= 2
    assert compiled.losses[:steps] == pytest.approx(plain.losses[:steps], rel=1e-4)


def test_graph_breaks_are_counted(probe):
    seen = probe("breaking", compile_mode="default").measurement.compilation

    assert seen.graph_breaks >= 1
    assert seen.graphs >= 2


def test_compiling_inside_the_window_is_seen(probe):
    seen = probe("changing", compile_mode="default").measurement.compilation

    assert seen.frames_in_window >= 1
    assert seen.recompilations >= 1
    assert seen.seconds_in_window > 0


def test_a_model_that_is_called_by_another_way_compiles_nothing(probe):
    seen = probe("elsewhere", compile_mode="default").measurement.compilation

    assert seen.graphs == 0
