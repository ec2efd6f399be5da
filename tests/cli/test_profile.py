"""`autotune profile`, with real processes: its answer fits a terminal, and every wrong call is one clear error."""

import json
import re
from importlib.util import find_spec
from subprocess import CompletedProcess

import pytest

from autotune.core import codec
from autotune.profile.profile import Profile
from autotune.profile.records import PARTS
from autotune.units import counted
from tests.commandline import TARGET, assert_one_clear_error
from tests.commandline import run_here as run

pytestmark = pytest.mark.slow
LAUNCH = ("python", "-m", "torch.distributed.run", "--nproc-per-node", "2")


def test_the_answer_fits_40_lines_of_100_columns_and_nothing_is_written(tmp_path):
    (tmp_path / "model.py").write_text(TARGET)

    profiled = run(tmp_path, "profile", "model.py", "--config", "batch=32")

    assert profiled.returncode == 0, profiled.stderr
    lines = profiled.stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("model.py with batch=32 on cpu: ")
    assert "of 32 samples" in lines[0]
    assert "% of a step" in lines[2]
    assert "GFLOP/s" in profiled.stdout
    assert "by shapes alone" in profiled.stdout
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["model.py"]


def test_json_has_all_readings_and_nothing_else_is_on_standard_output(tmp_path):
    (tmp_path / "model.py").write_text(TARGET)

    found = json.loads(run(tmp_path, "profile", "model.py", "--json").stdout)

    assert found["outcome"] == "ok"
    assert [one["part"] for one in found["parts"]] == list(PARTS)
    assert found["samples"] == 64
    assert found["memory"]["tensors"]["categories"]["parameters"] > 0
    assert (
        found["memory"]["shapes"]["breakdown"]["categories"].keys() == found["memory"]["tensors"]["categories"].keys()
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--verify", "--", *LAUNCH, "train.py"], "--verify profiles one process"),
        (["model.py", "--ranks", "2", "--nsys", "--output", "found"], "--nsys profiles one process"),
        (["--ranks", "2", "--", "python", "train.py"], "write them there: -- torchrun"),
        (["model.py", "--devices", "2,2"], "different positions such as 0,2"),
        (["--", "python", "train.py"], "did not train"),
        (["model.py", "--best"], "There is no study studies/model"),
        (["modle.py"], "Did you mean model.py?"),
        (["model.py", "--config", "batch"], "has no value"),
        (["model.py", "--config", "speed=3"], "speed"),
        (["model.py", "--nsys"], "--nsys needs a folder"),
        (["model.py", "--output", "none/there"], "there is no folder none"),
        (["model.py", "--output", "model.py"], "It is probably a file"),
    ],
)
def test_a_wrong_call_is_one_clear_error(tmp_path, words, says):
    (tmp_path / "model.py").write_text(TARGET)
    (tmp_path / "train.py").write_text("print('training')\n")

    assert says in assert_one_clear_error(run(tmp_path, "profile", *words))


LOOP = """
import torch
from torch import nn
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
for _ in range(1000):
    for inputs, targets in torch.utils.data.DataLoader(data, batch_size=8):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
"""


def test_steps_of_a_loop_of_the_users_own_cannot_be_taken_again(tmp_path):
    (tmp_path / "train.py").write_text(LOOP)

    told = assert_one_clear_error(run(tmp_path, "profile", "--verify", "--", "python", "train.py"))

    assert "python train.py trains in a loop of its own" in told


def test_an_error_of_the_users_comes_with_its_line(tmp_path):
    (tmp_path / "model.py").write_text(TARGET + "def loss(model, batch): return model(batch[0]).sum() / undefined\n")

    ended = run(tmp_path, "profile", "model.py")

    assert ended.returncode == 2
    assert "NameError: name 'undefined' is not defined" in ended.stderr
    assert "model.py:" in ended.stderr


def test_output_is_a_folder_of_files_and_what_is_missing_is_said(tmp_path):
    (tmp_path / "model.py").write_text(TARGET)

    profiled = run(tmp_path, "profile", "model.py", "--output", "found", "--nsys")

    assert profiled.returncode == 0, profiled.stderr
    names = {path.name for path in (tmp_path / "found").iterdir()}
    assert names - {"tensorboard"} == {"profile.json", "profile.html", "trace.json", "nsys", "log.txt"}
    has_tensorboard = find_spec("tensorboard") is not None
    assert ("tensorboard" in names) is has_tensorboard
    assert ("tensorboard is not installed" in profiled.stderr) is not has_tensorboard
    kept = codec.read(tmp_path / "found" / "profile.json", Profile)
    assert kept.result.parts
    assert kept.config["batch_size"] == 64
    trace = json.loads((tmp_path / "found" / "trace.json").read_text())
    parts = [one["name"] for one in trace["traceEvents"] if one.get("name", "").startswith("autotune::")]
    assert parts.count("autotune::optimizer") >= 4
    page = (tmp_path / "found" / "profile.html").read_text()
    assert "Where a step of" in page
    assert "--capture-range=cudaProfilerApi" in profiled.stderr
    assert "nsys was not run: it captures between two calls of CUDA" in profiled.stderr
    again = assert_one_clear_error(run(tmp_path, "profile", "model.py", "--output", "found"))
    assert "found is not empty" in again


@pytest.mark.parametrize("steps", [1, 30], ids=["while the script is looked at", "in its profile"])
def test_a_script_that_runs_out_of_memory_ends_with_the_lines_whose_tensors_took_it(tmp_path, steps):
    (tmp_path / "train.py").write_text(
        "import torch\nmodel, kept = torch.nn.Linear(4, 1), []\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "while True:\n"
        "    model(torch.zeros(8, 4)).mean().backward()\n"
        "    kept.append(torch.ones(2**18))\n"
        f"    if len(kept) == {steps}: torch.empty(2**45)\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n"
    )

    ended = run(tmp_path, "profile", "--json", "--", "python", "train.py")

    said = assert_one_clear_error(CompletedProcess(ended.args, ended.returncode, "", ended.stderr))
    held = f"{steps} MiB in {counted(steps, 'tensor')}"
    assert re.search(
        rf"When memory ran out, tensors held .*: train\.py:6 made [\d.]+% \({held}\)\. Try a smaller", said
    )
    first = json.loads(ended.stdout)["failure"]["sites"][0]
    assert first == {"place": "train.py:6", "bytes": steps * 2**20, "count": steps}


def test_a_batch_that_memory_does_not_hold_ends_with_what_needs_most(tmp_path):
    (tmp_path / "model.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def model(): return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))\n"
        "def batch(batch_size): return torch.zeros(1, 4).expand(batch_size, 4)\n"
        "def loss(model, batch): return model(batch).mean()\n"
    )

    ended = run(tmp_path, "profile", "model.py", "--config", "batch=20000000000", "--json")

    said = assert_one_clear_error(CompletedProcess(ended.args, ended.returncode, "", ended.stderr))
    assert "Profiling ran out of memory" in said
    assert "activations 4" in said  # TiB
    assert "of the activations 1 Tanh" in said
    assert "--config batch=10000000000" in said
    assert re.search(r"\. Of it no line of yours made \d+% .+, model\.py:5 made 33% \(4,768 GiB in 2 tensors\)", said)
    failure = json.loads(ended.stdout)["failure"]
    assert {one["place"]: one["bytes"] > 2**40 for one in failure["sites"]} == {"": True, "model.py:5": True}
