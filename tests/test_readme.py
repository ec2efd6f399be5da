"""README tells the truth: its code runs, its options and its names exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.knobs import KNOBS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def _help(*command):
    run = subprocess.run(
        [sys.executable, "-m", "autotune", *command, "--help"], capture_output=True, text=True, check=True
    )
    return run.stdout


def test_the_first_target_in_readme_passes_check(tmp_path):
    (code,) = re.findall(r"```python\n# model\.py\n(.*?)```", README, re.S)
    (tmp_path / "model.py").write_text(code)

    checked = subprocess.run(
        [sys.executable, "-m", "autotune", "check", "model.py"], cwd=tmp_path, capture_output=True, text=True
    )

    assert checked.returncode == 0, checked.stderr
    assert "cross_entropy" in checked.stdout


@pytest.mark.parametrize("name", ["command one", "using it", "command two"])
def test_the_gate_finds_each_command_once(name):
    assert len(re.findall(rf"<!-- {name} -->\n```bash\n.+?```", README, re.S)) == 1


def test_every_option_in_readme_exists():
    known = _help("search") + _help("best") + _help("show") + _help() + _help("check") + _help("dashboard")
    known += _help("compare") + _help("log") + _help("report")
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", re.sub(r"pip install[^\n]*|git [^\n]*", "", README)))
    elsewhere = {"--seconds", "--tasks", "--dist"}  # of benchmarks, of pytest

    assert {option for option in mentioned - elsewhere if option not in known} == set()


def test_every_command_in_readme_exists():
    listed = _help()

    commands = set(re.findall(r"autotune ([a-z]+)(?: |`|$)", README)) - {"as", "itself"}
    assert {command for command in commands if not re.search(rf"^  {command} ", listed, re.M)} == set()


def test_no_placeholder_is_left():
    assert re.findall(r"@[A-Z]+@", README) == []


def test_the_dict_in_readme_has_the_keys_of_the_knobs():
    (shown,) = re.findall(r"# (\{.*?\})\n```", README)

    assert set(re.findall(r"'(\w+)':", shown)) == {knob.name for knob in KNOBS}
