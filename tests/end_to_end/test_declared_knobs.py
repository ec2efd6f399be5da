"""A knob that the user declares, from a real search to the answer, its exports, and a study without its target."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from autotune.core.records import Config
from autotune.knobs import defaults
from autotune.knobs.declared import declaration, declaring
from autotune.precision.arithmetic import full_precision
from autotune.precision.records import PrecisionCheckRequest
from tests.commandline import assert_one_clear_error, briefly, run_here
from tests.session_launcher import SessionLauncher
from tests.worlds import facts

pytestmark = pytest.mark.slow

# The same arithmetic: one of the two waits in between.
TARGET = """\
import time
import torch
from torch import nn
from torch.utils.data import TensorDataset

class Net(nn.Module):
    def __init__(self, mixer):
        super().__init__()
        self.mixer, self.layer = mixer, nn.Linear(8, 2)

    def forward(self, x):
        if self.mixer == "slow":
            time.sleep(0.15)
        return self.layer(x)

torch.set_num_threads(1)  # two that wait for each other on a busy machine take as long as the sleep

def model(mixer): return Net(mixer)
def dataset(): return TensorDataset(torch.randn(512, 8), torch.randint(2, (512,)))
baseline = {"batch_size": 8}
space = {
    "batch_size": [8], "amp_dtype": [None], "num_workers": [0],
    "mixer": {"values": ["slow", "quick"], "changes_arithmetic": False},
}
"""
SCRIPT = """\
import argparse
import time
import torch

p = argparse.ArgumentParser()
p.add_argument("--mixer", choices=["slow", "quick"])
p.add_argument("--batch-size", type=int)
arguments = p.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(512, 8), torch.randint(2, (512,)))
for epoch in range(10_000):
    for x, y in torch.utils.data.DataLoader(data, batch_size=arguments.batch_size):
        if arguments.mixer == "slow":
            time.sleep(0.15)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("declared")
    (home / "model.py").write_text(TARGET)
    words = ("search", "model.py", "-t", "5m", "--device", "cpu", "--study", "found", "--tune", "mixer")
    with briefly():
        ended = run_here(home, *words)
    assert ended.returncode == 0, ended.stderr
    (home / "model.py").unlink()  # from here on the study speaks for itself
    return home


def test_the_faster_value_is_found_and_loaded(searched: Path) -> None:
    best = json.loads((searched / "found" / "best.json").read_text())

    assert best["params"]["mixer"] == "quick"
    assert best["baseline"]["mixer"] == "slow"
    assert best["speedup"] > 2
    assert run_here(searched, "best", "found", "--key", "mixer").stdout == "quick\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("best", "found"), "quick  was slow"),
        (("best", "found", "--verbose"), 'mixer: "quick"'),
        (("show", "found"), "mixer"),
        (("explain", "found"), "mixer"),
        (("report", "found", "--markdown"), "mixer"),
        (("export", "found", "--to", "torch"), "mixer = 'quick'  # yours: model(mixer=mixer)"),
        (("export", "found", "--to", "hf"), "mixer = 'quick'"),
        (("export", "found", "--to", "json"), '"mixer": "quick"'),
        (("log", "found", "--to", "csv"), ",mixer,"),
        (("compare", "found", "again"), "mixer"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_it_is_shown_like_ours_where_the_target_is_gone(searched: Path, words: tuple[str, ...], expected: str) -> None:
    shutil.copytree(searched / "found", searched / "again", dirs_exist_ok=True)

    ended = run_here(searched, *words)

    assert ended.returncode == 0, ended.stderr
    assert expected in ended.stdout.replace("   ", "  "), ended.stdout


def test_the_page_has_its_column_and_its_change(searched: Path) -> None:
    run_here(searched, "report", "found", "-o", "page.html")

    page = (searched / "page.html").read_text()
    assert "<th>mixer" in page or ">mixer<" in page


def test_python_gets_it_in_the_dict(searched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import autotune

    monkeypatch.chdir(searched)

    assert autotune.load_best("found", check=False)["mixer"] == "quick"
    assert autotune.apply("found", check=False)["mixer"] == "quick"


def test_what_was_not_measured_is_measured_on_request(searched: Path, tmp_path: Path) -> None:
    shutil.copytree(searched / "found", tmp_path / "found")
    (tmp_path / "model.py").write_text(TARGET)
    study = tmp_path / "found" / "study.json"
    asked = json.loads(study.read_text())
    asked["domains"]["num_threads"] = [None, 1]  # as if the search had not come to it
    study.write_text(json.dumps(asked))

    before = run_here(tmp_path, "explain", "found")
    with briefly():
        after = run_here(tmp_path, "explain", "found", "--measure", "-t", "2m", "--json")

    assert "threads" in before.stdout
    assert "was not measured" in before.stdout
    assert after.returncode == 0, after.stderr
    assert "Measuring 1 setting against the recommendation: about " in after.stderr
    found = {next(iter(one["values"])): one for one in json.loads(after.stdout)["settings"]}
    assert found["num_threads"]["inside"]["by"] == "rounds"
    assert found["mixer"]["inside"]["ratio"] > 1


def test_fix_and_tune_take_its_name(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(TARGET)

    held = run_here(tmp_path, "search", "model.py", "--dry-run", "--json", "--fix", "mixer=quick")
    tuned = run_here(tmp_path, "search", "model.py", "--dry-run", "--json", "--tune", "mixer")

    assert held.returncode == 0, held.stderr
    assert json.loads(held.stdout)["request"]["domains"]["mixer"] == ["quick"]
    assert json.loads(tuned.stdout)["request"]["domains"]["mixer"] == ["slow", "quick"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--fix", "mixer=quik"), "--fix: mixer must be one of slow, quick, got 'quik'"),
        (("--fix", "mixr=quick"), "--fix: there is no knob 'mixr'"),
        (("--tune", "layer"), "--tune: there is no knob 'layer'"),  # a word of the file, and no knob
        (("--baseline", "mixer=3"), "--baseline: mixer must be one of slow, quick, got '3'"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_a_mistake_on_the_command_line_is_one_clear_error(
    tmp_path: Path, words: tuple[str, ...], expected: str
) -> None:
    (tmp_path / "model.py").write_text(TARGET)

    ended = run_here(tmp_path, "search", "model.py", *words)

    assert expected in assert_one_clear_error(ended)
    assert not (tmp_path / "studies").exists()


def test_a_command_is_searched_by_its_placeholder(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)

    words = ["-t", "5m", "--device", "cpu", "--study", "found", "--tune", "mixer", "--stability", "off"]
    line = ["python", "train.py", "--batch-size", "8", "--mixer", "{mixer:slow/quick}"]
    with briefly():
        ended = run_here(tmp_path, "search", *words, "--", *line)

    assert ended.returncode == 0, ended.stderr
    best = json.loads((tmp_path / "found" / "best.json").read_text())
    assert best["params"]["mixer"] == "quick"
    assert "--mixer quick" in run_here(tmp_path, "best", "found", "--command").stdout


def test_losses_of_a_declared_value_are_compared_like_those_of_a_dtype(
    tmp_path: Path, forking_launcher: SessionLauncher
) -> None:
    text = TARGET.replace('["slow", "quick"]', '["slow", "quick", "other"]').replace("time.sleep(0.15)", "pass")
    text = text.replace("return self.layer(x)", "return self.layer(x) * (3 if self.mixer == 'other' else 1)")
    (tmp_path / "model.py").write_text(text)
    reference = Config(values=defaults() | {"batch_size": 8, "mixer": "slow"})

    def losses(value: str) -> tuple[list[float | None], list[float | None]]:
        asked = PrecisionCheckRequest(
            target=str(tmp_path / "model.py"), reference=reference, device="cpu", steps=5,
            candidate=Config(values=reference.values | {"mixer": value}), seeds=(1,),
        )  # fmt: skip
        (tmp_path / value).mkdir()
        result = forking_launcher.run(asked, tmp_path / value)
        runs = {run.role: list(run.losses) for run in result.runs}
        return runs["reference"], runs["candidate"]

    with declaring(declaration("mixer", ["slow", "quick", "other"])):
        assert full_precision(Config(values=reference.values | {"mixer": "quick"}), facts()) == reference
    same, different = losses("quick"), losses("other")
    assert same[0] == same[1]
    assert different[0] != different[1]
