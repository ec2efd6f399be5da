"""The user's own line comes first, whatever the exception went through."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from autotune.targets.tracebacks import error_line, error_text, user_frames
from tests.targets_support import COMPLETE, DATASET, HEAD, MODEL, inspect, refused, start, watch, write

BROKEN_DATASET = MODEL + (
    "class Broken(Dataset):\n"
    "    def __len__(self): return 50\n"
    "    def __getitem__(self, index):\n"
    "        return {}['missing']\n"
    "def dataset(): return Broken()\n"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (COMPLETE + "open('absent.csv')\n", "model.py:6 in <module>: FileNotFoundError: [Errno 2]"),
        (COMPLETE + "def broken(:\n", "model.py:6 in <module>: SyntaxError: invalid syntax"),
        (HEAD + "def model():\n    return 1 / 0\n" + DATASET, "model.py:5 in model: ZeroDivisionError"),
        (MODEL + "def dataset():\n    return open('absent.csv')\n", "model.py:6 in dataset: FileNotFoundError"),
        (BROKEN_DATASET, "model.py:8 in __getitem__: KeyError: 'missing'"),
        (COMPLETE + "def loss(model, batch):\n    return batch.x\n", "model.py:7 in loss: AttributeError"),
        (COMPLETE + "def collate(samples):\n    raise ValueError('odd')\n", "model.py:7 in collate: ValueError: odd"),
        (COMPLETE + "def setup():\n    raise ValueError('odd')\n", "model.py:7 in setup: ValueError: odd"),
        (COMPLETE + "def baseline():\n    raise ValueError('odd')\n", "model.py:7 in baseline: ValueError: odd"),
        (
            COMPLETE + "def optimizer(params):\n    raise ValueError('odd')\n",
            "model.py:7 in optimizer: ValueError: odd",
        ),
        (COMPLETE + "def validation():\n    raise ValueError('odd')\n", "model.py:7 in validation: ValueError: odd"),
    ],
)
def test_an_exception_of_the_user_begins_with_the_users_line(tmp_path: Path, text: str, message: str) -> None:
    error = refused(tmp_path, text)

    assert str(error).startswith(message)
    assert error.__cause__ is not None


def test_the_innermost_line_may_lie_in_another_file_of_the_user(tmp_path: Path) -> None:
    write(tmp_path, "def read():\n    raise OSError('no such record')\n", "own_records.py")

    error = refused(tmp_path, MODEL + "import own_records\ndef dataset(): return own_records.read()\n")

    assert str(error).startswith("own_records.py:2 in read: OSError: no such record")
    assert error.traceback.index("model.py") < error.traceback.index("own_records.py")


def test_frames_of_libraries_are_left_out(tmp_path: Path) -> None:
    text = HEAD + "class Net(nn.Linear):\n    def forward(self, x):\n        return super().forward(x[:, :3])\n"

    error = refused(tmp_path, text + "def model(): return Net(4, 2)\n" + DATASET)

    assert str(error).startswith("model.py:6 in forward: RuntimeError: mat1 and mat2 shapes")
    assert "torch/nn/modules" not in error.traceback
    assert "autotune/targets" not in error.traceback


def test_the_line_is_dug_out_of_the_text_that_a_loader_worker_sends(tmp_path: Path) -> None:
    session = start(tmp_path, BROKEN_DATASET, num_workers=1)

    with pytest.raises(KeyError) as caught:
        session.train(watch(1))

    frame, trace = user_frames(caught.value, tmp_path)
    assert frame == "model.py:8 in __getitem__"
    assert "return {}['missing']" in trace
    assert trace.endswith("KeyError: 'missing' (in DataLoader worker process 0)")
    assert error_line(caught.value) == "KeyError: 'missing' (in DataLoader worker process 0)"


def test_of_the_errors_that_a_loader_worker_sends_the_raised_one_is_told(tmp_path: Path) -> None:
    text = BROKEN_DATASET.replace(
        "        return {}['missing']\n",
        "        try: {}['missing']\n"
        "        except KeyError as error: raise ValueError('sample 137 is corrupt\\nreplace it') from error\n",
    )
    session = start(tmp_path, text, num_workers=1)

    with pytest.raises(ValueError, match="Caught ValueError in DataLoader worker") as caught:
        session.train(watch(1))

    assert user_frames(caught.value, tmp_path)[0] == "model.py:9 in __getitem__"
    assert error_line(caught.value) == "ValueError: sample 137 is corrupt (in DataLoader worker process 0)"
    assert error_text(caught.value).endswith("process 0)\nreplace it")


def test_a_file_outside_the_root_is_still_the_users(tmp_path: Path) -> None:
    session = start(tmp_path / "code", BROKEN_DATASET)

    with pytest.raises(KeyError) as caught:
        session.train(watch(1))

    frame, _ = user_frames(caught.value, tmp_path / "elsewhere")
    assert frame == f"{tmp_path}/code/model.py:8 in __getitem__"


def test_an_exception_that_touched_no_user_code_still_has_its_last_line(tmp_path: Path) -> None:
    error = RuntimeError("shapes cannot be multiplied\nand a second line")

    assert user_frames(error, tmp_path) == ("", "RuntimeError: shapes cannot be multiplied\nand a second line")


def test_all_lines_of_a_message_are_told_below_the_traceback_up_to_twenty(tmp_path: Path) -> None:
    trace = user_frames(RuntimeError("\n".join(map(str, range(100)))), tmp_path)[1]

    assert trace.splitlines() == ["RuntimeError: 0", *map(str, range(1, 20))]


@pytest.mark.parametrize("raised", ["MemoryError()", "torch.OutOfMemoryError('CUDA out of memory. Tried to allocate')"])
@pytest.mark.parametrize("place", ["model", "dataset", "loss"])
def test_running_out_of_memory_is_no_mistake_of_the_user(tmp_path: Path, place: str, raised: str) -> None:
    arguments = "model, batch" if place == "loss" else ""
    text = COMPLETE + f"def {place}({arguments}):\n    raise {raised}\n"

    with pytest.raises((MemoryError, torch.OutOfMemoryError)):
        inspect(tmp_path, text)


def test_training_lets_exceptions_of_the_user_through_unchanged(tmp_path: Path) -> None:
    session = start(tmp_path, COMPLETE + "def loss(model, batch):\n    raise ZeroDivisionError('mine')\n")

    with pytest.raises(ZeroDivisionError, match="mine"):
        session.train(watch(1))
