"""What a person is told while a command prepares its training."""

from pathlib import Path
from queue import Queue

import pytest

from autotune.cli import saying_launcher
from autotune.cli.saying_launcher import SayingLauncher
from autotune.core.requests import InspectRequest
from autotune.launch.base import REQUEST, RESULT
from autotune.targets.commands.hygiene import RANKS_FOLDER


class WaitingForAWord:
    """A launcher whose training begins when something was said."""

    def __init__(self, said):
        self._said = said

    def run(self, request, folder):
        return self._said.get(timeout=60)


def test_a_command_that_takes_its_time_before_its_first_step_is_told_of(monkeypatch):
    said = Queue()
    monkeypatch.setattr(saying_launcher, "SILENT_SECONDS", 0.001)
    monkeypatch.setattr(saying_launcher, "say", lambda text, *, stderr: said.put((text, stderr)))

    text, is_error = SayingLauncher(WaitingForAWord(said)).run(InspectRequest(target="-- python train.py"), Path())

    assert text.startswith("train.py has taken no training step for 0 s.")
    assert "TORCHDYNAMO_DISABLE=1" in text
    assert "If it trains without backward(), as by torch.func, no step is seen: write autotune.step(" in text
    assert is_error


@pytest.mark.parametrize("target", [None, "model.py"])
def test_of_other_targets_nothing_is_told(monkeypatch, target):
    said = Queue()
    said.put("an answer")
    monkeypatch.setattr(saying_launcher.threading, "Thread", None)

    assert SayingLauncher(WaitingForAWord(said)).run(InspectRequest(target=target), Path()) == "an answer"


class Serving(WaitingForAWord):
    """A launcher of two ranks: the first has its answer, and the second only answers the first."""

    def run(self, request, folder):
        for rank in ("0", "1"):
            (place := folder / RANKS_FOLDER / rank).mkdir(parents=True)
            (place / REQUEST).write_text("{}")
        return (
            super().run(request, folder),
            (folder / RANKS_FOLDER / "0" / RESULT).write_text("{}"),
            super().run(request, folder),
        )


def test_a_rank_that_takes_no_step_while_another_has_is_named(monkeypatch, tmp_path):
    said = Queue()
    monkeypatch.setattr(saying_launcher, "SILENT_SECONDS", 0.001)
    monkeypatch.setattr(saying_launcher, "say", lambda text, *, stderr: said.put(text))

    nobody, _, server = SayingLauncher(Serving(said)).run(InspectRequest(target="-- torchrun train.py"), tmp_path)

    assert "train.py has taken no training step for 0 s. It may prepare data" in nobody
    assert server.startswith("Rank 1 of ")
    assert "train.py has taken no training step for 0 s, and rank 0 has." in server
    assert "parameter server" in server
