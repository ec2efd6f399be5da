"""README tells the truth: its code runs, and the gate finds its commands."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.knobs import KNOBS
from autotune.objectives import OBJECTIVES
from autotune.report.answer import answer_block
from autotune.study.view import load_view
from tests.commandline import run_here

pytestmark = pytest.mark.slow  # runs its commands

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
TARGETS = (ROOT / "docs" / "targets.md").read_text()
MOST_LINES, MOST_CHARACTERS = 110, 120  # two screens, and what ranks and a fleet say


def _block(page: str, first_line: str) -> str:
    """The one Python block of a page that begins with this line."""
    (code,) = re.findall(rf"```python\n({re.escape(first_line)}\n.*?)```", page, re.S)
    return str(code)


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)


def test_the_training_before_trains(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_block(TARGETS, "# train.py, before"))

    ended = _run(tmp_path, "train.py")

    assert ended.returncode == 0, ended.stderr


def test_the_training_after_is_a_target_without_a_guess(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_block(TARGETS, "# train.py, after"))

    checked = run_here(tmp_path, "check", "train.py")

    assert checked.returncode == 0, checked.stderr
    assert "loss(model, batch)" in checked.stdout
    assert "inferred" not in checked.stdout


def test_the_training_after_trains_with_an_answer(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_block(TARGETS, "# train.py, after"))
    answer = tmp_path / "studies" / "train"
    answer.mkdir(parents=True)
    shutil.copy(ROOT / "studies" / "digits_cnn-epyc-minute" / "best.json", answer)

    ended = _run(tmp_path, "train.py")

    assert ended.returncode == 0, ended.stderr


def test_the_first_target_of_the_documents_passes_check(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(_block(TARGETS, "# model.py"))

    checked = run_here(tmp_path, "check", "model.py")

    assert checked.returncode == 0, checked.stderr
    assert "cross_entropy" in checked.stdout


@pytest.mark.parametrize("name", ["command one", "using it", "command two"])
def test_the_gate_finds_each_command_once(name: str) -> None:
    assert len(re.findall(rf"<!-- {name} -->\n```bash\n.+?```", README, re.S)) == 1


def test_readme_is_two_screens() -> None:
    lines = README.splitlines()

    assert len(lines) <= MOST_LINES
    assert [line for line in lines if len(line) > MOST_CHARACTERS and not line.startswith("![")] == []


def test_no_placeholder_is_left() -> None:
    assert re.findall(r"@[A-Z]+@", README) == []


@pytest.mark.parametrize(
    ("page", "name", "model"),
    [(README, "digits_cnn-epyc-minute", "digits_cnn"), (TARGETS, "train-epyc", "Sequential")],
    ids=["README", "targets"],
)
def test_the_output_in_the_documents_is_that_of_the_recorded_study(page: str, name: str, model: str) -> None:
    shown = re.search(rf"{model} trains (\d\.\d+)× faster than your baseline \((.+?) to (.+?)\)", page)
    from autotune import load_result

    recorded = load_result(ROOT / "studies" / name)

    assert shown
    study = load_view(ROOT / "studies" / name)
    assert str(answer_block(recorded, study)).partition("  Use it")[0] in page
    assert [f"{value:.2f}" for value in (recorded.speedup, recorded.speedup_low, recorded.speedup_high)] == [
        *shown.groups()
    ]


def test_the_dict_in_the_documents_has_the_keys_of_the_knobs() -> None:
    page = (ROOT / "docs" / "using-the-answer.md").read_text()
    (shown,) = re.findall(r"# (\{.*?\})\n```", page)

    assert set(re.findall(r"'(\w+)':", shown)) == {knob.name for knob in KNOBS}


def test_every_knob_is_in_the_table_of_knobs() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", (ROOT / "docs" / "knobs.md").read_text(), re.M)

    assert rows == [(knob.name, knob.alias) for knob in KNOBS]


def test_every_objective_is_in_the_table_of_objectives() -> None:
    rows = re.findall(r"^\| `(\w[\w-]*)` \| ", (ROOT / "docs" / "objectives.md").read_text(), re.M)

    assert rows == [objective.name for objective in OBJECTIVES]
