"""What a newer version wrote into a study and this one does not know: the rest is read all the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.core import codec
from autotune.core.codes import Code
from autotune.profile.records import ProfileResult
from autotune.study.recommendation import read_best
from tests.commandline import run_here

RECORDED = Path(__file__).parents[2] / "studies" / "digits_cnn-epyc-minute"
TOMORROW = {"code": "of-tomorrow", "numbers": {"spin": [1, 2]}, "text": "The electrons spin. Stop them."}
UNCERTAIN = {
    "code": "confirmation-interference", "numbers": {"rounds": [TOMORROW]}, "text": "It is uncertain. Search again.",
}  # fmt: skip
SLOW = {
    "code": "slow-line", "numbers": {"kind": "of tomorrow", "place": "m.py:3", "milliseconds": 3.0, "share": 0.2},
    "text": "m.py:3 does a new thing.",
}  # fmt: skip


def edited(path: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECORDED, tmp_path / "studies" / "cnn"))


@pytest.mark.parametrize(
    ("warning", "said"),
    [
        (TOMORROW, "The electrons spin. Stop them."),
        ({**TOMORROW, "text": ""}, "A finding of a newer version of autotune."),
        (UNCERTAIN, "It is uncertain. Search again."),
    ],
    ids=["code", "without a sentence", "within another"],
)
def test_a_warning_of_tomorrow_is_said_in_its_own_words(warning: dict[str, Any], said: str, study: Path) -> None:
    best = edited(study / "best.json", lambda known: known["warnings"].append(warning))

    shown, page = run_here(study, "best", "."), run_here(study, "report", ".", "-o", "page.html")

    assert said in " ".join(shown.stdout.split()), shown.stderr
    assert page.returncode == 0, page.stderr
    assert all(isinstance(one.code, Code) for one in read_best(best).warnings)


def test_a_slow_line_of_tomorrow_is_said_in_its_own_words(study: Path) -> None:
    edited(study / "best.json", lambda known: known.update(slow_lines=[SLOW]))

    ended = run_here(study, "best", ".")

    assert "m.py:3 does a new thing." in ended.stdout, ended.stderr


def test_a_profile_is_read_without_its_lines_of_tomorrow(study: Path) -> None:
    path = study / "profile" / "0000" / "result.json"
    before = codec.read(path, ProfileResult)

    edited(path, lambda known: known["findings"].append({**known["findings"][0], "kind": "of tomorrow", "spin": 1}))

    assert before.slow_lines
    assert codec.read(path, ProfileResult) == before
