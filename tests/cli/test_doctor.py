"""`autotune doctor` and `autotune init`, as a newcomer runs them first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.core.codes import Code
from autotune.report.doctor import BUSY_SHARE, TOO_BUSY_SHARE
from tests.commandline import listing, run, run_here

pytestmark = pytest.mark.slow  # real inspections


def test_doctor_says_in_json_what_it_says_in_words(tmp_path: Path) -> None:
    told = json.loads(run_here(tmp_path, "doctor", "--device", "cpu", "--json").stdout)

    words = run_here(tmp_path, "doctor", "--device", "cpu")

    assert words.returncode in (0, 3)  # where other tests keep the machine busy
    assert "\x1b" not in words.stdout
    assert told["environment"]["device"] == "cpu"
    for check in told["checks"]:
        assert check["name"] in words.stdout
        assert check["code"] in {str(code) for code in Code if code.number // 100 == 13}
    cores = next(check for check in told["checks"] if check["name"] == "cores")
    assert cores["numbers"]["usable_cores"] == told["environment"]["usable_cores"]
    assert cores["text"] == "{usable_cores} usable, {foreign_cores:.1f} kept busy by others".format(**cores["numbers"])
    assert listing(tmp_path) == set()


def test_doctor_sees_a_program_that_computes(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            # In a process of its own: what this one started would be its own work.
            told = json.loads(run(tmp_path, "doctor", "--device", "cpu", "--json").stdout)
        finally:
            other.kill()

    cores = next(check for check in told["checks"] if check["name"] == "cores")
    busy = float(cores["text"].partition(" usable, ")[2].split()[0])
    assert busy > 0.5
    shares = [(busy + off) / told["environment"]["usable_cores"] for off in (-0.05, 0.05)]  # it is told to a tenth
    states = {"bad" if one > TOO_BUSY_SHARE else "busy" if one > BUSY_SHARE else "good" for one in shares}
    assert cores["state"] in states


def test_doctor_is_exit_status_three_where_no_search_can_run(tmp_path: Path) -> None:
    ended = run_here(tmp_path, "doctor", "--device", "cuda:77", "--json")

    assert ended.returncode == 3
    assert "bad" in [check["state"] for check in json.loads(ended.stdout)["checks"]]


def test_check_accepts_the_file_that_init_writes(tmp_path: Path) -> None:
    wrote = run_here(tmp_path, "init")

    checked = run_here(tmp_path, "check", "model.py")

    assert wrote.stdout.splitlines() == ["wrote model.py", "next: autotune check model.py"]
    assert checked.returncode == 0, checked.stderr
    assert checked.stderr == ""
    assert "\x1b" not in checked.stdout
    assert {str(tmp_path / "model.py")} == listing(tmp_path)
