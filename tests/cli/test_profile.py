"""`autotune profile`, with real processes: its answer fits a terminal, and every wrong call is one clear error."""

import json

import pytest

from tests.commandline import TARGET, assert_one_clear_error
from tests.commandline import run_here as run

pytestmark = pytest.mark.slow


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
    assert [one["part"] for one in found["parts"]] == ["data", "copy", "forward", "backward", "optimizer", "other"]
    assert found["samples"] == 64
    assert found["memory"]["tensors"]["categories"]["parameters"] > 0
    assert (
        found["memory"]["shapes"]["breakdown"]["categories"].keys() == found["memory"]["tensors"]["categories"].keys()
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--", "python", "train.py"], "commands are not profiled yet"),
        (["model.py", "--best"], "There is no study studies/model"),
        (["modle.py"], "Did you mean model.py?"),
        (["model.py", "--config", "batch"], "has no value"),
        (["model.py", "--config", "speed=3"], "speed"),
    ],
)
def test_a_wrong_call_is_one_clear_error(tmp_path, words, says):
    (tmp_path / "model.py").write_text(TARGET)
    (tmp_path / "train.py").write_text("print('training')\n")

    assert says in assert_one_clear_error(run(tmp_path, "profile", *words))


def test_an_error_of_the_users_comes_with_its_line(tmp_path):
    (tmp_path / "model.py").write_text(TARGET + "def loss(model, batch): return model(batch[0]).sum() / undefined\n")

    ended = run(tmp_path, "profile", "model.py")

    assert ended.returncode == 2
    assert "NameError: name 'undefined' is not defined" in ended.stderr
    assert "model.py:" in ended.stderr


def test_a_batch_that_memory_does_not_hold_ends_with_what_needs_most(tmp_path):
    (tmp_path / "model.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def model(): return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))\n"
        "def batch(batch_size): return torch.zeros(1, 4).expand(batch_size, 4)\n"
        "def loss(model, batch): return model(batch).mean()\n"
    )

    said = assert_one_clear_error(run(tmp_path, "profile", "model.py", "--config", "batch=20000000000"))

    assert "Profiling ran out of memory" in said
    assert "activations 4" in said  # TiB
    assert "of the activations 1 Tanh" in said
    assert "--config batch=10000000000" in said
