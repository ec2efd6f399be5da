"""A Ctrl-C that Python swallows ends the command all the same, at its next step."""

import subprocess
import sys

import pytest

from autotune import interrupts
from autotune.cli import main

SWALLOWED = """
import signal, sys, tempfile, weakref
from pathlib import Path
from autotune import interrupts
from autotune.core.requests import ProbeRequest
from autotune.core.records import Config
from autotune.launch.subprocess import SubprocessLauncher

interrupts.heed()

class Held:
    pass

held = Held()
watching = weakref.ref(held, lambda _: signal.raise_signal(signal.NUMBER))
del held
print("goes on", flush=True)
asked = ProbeRequest(target="model.py", config=Config(values={}), device="cpu")
try:
    SubprocessLauncher().run(asked, Path(tempfile.mkdtemp()))
except KeyboardInterrupt:
    print("ended")
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_an_interrupt_within_a_callback_of_a_weak_reference_starts_no_further_process(number):
    ended = subprocess.run(
        [sys.executable, "-c", SWALLOWED.replace("NUMBER", number)], capture_output=True, text=True, check=False
    )

    assert "Exception ignored" in ended.stderr  # by Python
    assert ended.stdout.splitlines() == ["goes on", "ended"]


def test_without_one_nothing_is_raised_and_one_that_did_its_work_is_forgotten(monkeypatch):
    monkeypatch.setattr(interrupts, "_is_asked", False)
    interrupts.check()

    with pytest.raises(KeyboardInterrupt):
        interrupts._interrupted(2, None)
    with pytest.raises(KeyboardInterrupt):
        interrupts.check()

    interrupts.forget()
    interrupts.check()


def test_an_interrupted_command_does_not_end_the_next_one_in_the_same_process(monkeypatch):
    monkeypatch.setattr(interrupts, "_is_asked", False)
    monkeypatch.setattr("autotune.cli.app.run", lambda: interrupts._interrupted(2, None))

    with pytest.raises(SystemExit, match="130"):
        main()

    interrupts.check()
