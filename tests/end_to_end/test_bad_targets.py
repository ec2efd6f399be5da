"""Training code that cannot be tuned: the user's own mistake first, in a form that says what to do."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commandline import TARGET, listing, processes, run, run_here

MODEL = "import torch\nfrom torch import nn\ndef model(): return nn.Linear(8, 2)\n"
EMPTY = "def dataset(): return torch.utils.data.TensorDataset(torch.zeros(0, 8), torch.zeros(0, dtype=torch.long))\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("target", "text", "named"),
    [
        ("missing.py", None, "There is no file missing.py"),
        ("folder", None, "folder is a folder"),
        ("no such thing", None, "'no such thing' is neither a Python file nor a module"),
        ("empty.py", MODEL + EMPTY, "0 samples"),
        ("bare.py", MODEL, "no data"),
    ],
)
def test_what_is_no_target_is_explained_once(target: str, text: str | None, named: str, place: Path) -> None:
    if text is not None:
        (place / target).write_text(text)
    before = listing(place)

    ended = run_here(place, "check", target)

    assert ended.returncode == 2
    assert named in ended.stderr
    assert ended.stderr.count(named) == 1
    assert ended.stdout == ""
    assert before == listing(place)


@pytest.mark.parametrize(
    ("text", "place_of_fault", "error", "command"),
    [
        ("import torch\n\nrate = 1 / 0\n", "model.py:3", "ZeroDivisionError: division by zero", run_here),
        ("import torch\ndef model(:\n", "model.py:2", "SyntaxError", run_here),
        (
            TARGET + "def loss(model, batch):\n    raise RuntimeError('boom [bold]100 %s[/bold]')\n",
            f"model.py:{len(TARGET.splitlines()) + 2}",
            "RuntimeError: boom [bold]100 %s[/bold]",
            run,  # one of them with a process for the command, a fork server, and a fresh process that is asked again
        ),
    ],
    ids=["import", "syntax", "loss"],
)
def test_an_exception_is_shown_by_the_users_own_line(
    text: str, place_of_fault: str, error: str, command: Callable[..., subprocess.CompletedProcess[str]], place: Path
) -> None:
    (place / "model.py").write_text(text)

    ended = command(place, "search", "model.py")

    assert ended.returncode == 2
    headline = ended.stderr.partition("error: ")[2].splitlines()[0]
    assert headline.startswith(place_of_fault)
    assert error in headline
    assert "site-packages" not in ended.stderr
    log = re.search(r"Full log: (.+)", ended.stderr)
    assert log is not None
    assert (place / log[1]).is_file()
    assert not (place / "studies" / "model" / "study.json").exists()
    assert processes(place) == []
    assert not list(place.rglob("__pycache__"))
