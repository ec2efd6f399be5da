"""The machine of these tests is a fake one, whatever was imported before."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from tests.fuzz.inprocess import run, target


@pytest.mark.parametrize(
    "command", [("search", "-n", "1", "--json"), ("search", "--dry-run", "--json"), ("check", "--json")]
)
def test_no_process_is_started(command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_module("autotune.preparation.launching")  # by another test of this process: it has the launcher's name
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("a process was started"))

    told = run(command[0], str(target(tmp_path)), *command[1:])

    assert told.returncode == 0, told.stderr
    assert "Fake GPU" in json.dumps(json.loads(told.stdout)) + told.stderr
