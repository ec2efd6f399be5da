"""A new kind of measurement is its records, its child, and one line of the registry."""

import ast
import sys
from pathlib import Path

import pytest

import autotune
from autotune.core.measurements import MEASUREMENTS
from autotune.core.requests import Kind
from autotune.core.results import Outcome
from autotune.launch.base import REQUEST
from autotune.launch.subprocess import SubprocessLauncher
from autotune.study import disk
from autotune.study.history import History
from autotune.testing import FakeLauncher
from autotune.testing.launcher_contract import example
from tests.worlds import study_request

RECORDS = """
from typing import ClassVar

from autotune.core.requests import Request
from autotune.core.results import Result

class EchoResult(Result, frozen=True, kw_only=True):
    said: str = ""

class EchoRequest(Request[EchoResult], frozen=True, kw_only=True, tag="echo", tag_field="request"):
    FOLDER: ClassVar[str] = "echoes"

    words: str
"""
CHILD = """
from autotune.core.results import Outcome
from echo_records import EchoResult

def echo(request, progress):
    progress.phase("measure")
    if request.words == "fail":
        raise MemoryError("too many words")
    return EchoResult(outcome=Outcome.OK, said=request.words)
"""
MAIN = """
import sys

from autotune.core.measurements import MEASUREMENTS
from autotune.child.__main__ import main
from echo_records import EchoRequest

MEASUREMENTS[EchoRequest] = "echo_child:echo"
sys.exit(main(sys.argv[1:]))
"""


KILLED = """
import sys
from pathlib import Path

from autotune.core import codec
from autotune.core.measurements import decode
from autotune.core.results import Failure, Outcome

folder = Path(sys.argv[1])
failure = Failure(phase="measure", message="a worker died", evidence="DataLoader worker is killed by signal: Killed")
codec.write(folder / "result.json", decode((folder / "request.json").read_bytes()).failed(Outcome.CRASHED, failure))
"""


@pytest.fixture
def echo(tmp_path, monkeypatch):
    """Three files of a stranger: records, child, and the registry line."""
    for name, text in (("echo_records", RECORDS), ("echo_child", CHILD), ("echo_main", MAIN)):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import echo_records

    monkeypatch.setitem(MEASUREMENTS, echo_records.EchoRequest, "echo_child:echo")
    yield echo_records
    del sys.modules["echo_records"]


@pytest.mark.slow
def test_a_new_kind_is_launched_answered_and_read_back_though_nothing_else_was_edited(echo, tmp_path):
    launcher = SubprocessLauncher(command=(sys.executable, str(tmp_path / "echo_main.py")))
    study = tmp_path / "study"
    asked = [echo.EchoRequest(words=words) for words in ("hello", "fail")]

    results = [launcher.run(request, disk.new_attempt(study, echo.EchoRequest)[1]) for request in asked]

    assert [result.said for result in results] == ["hello", ""]
    assert [result.outcome for result in results] == [Outcome.OK, Outcome.OOM_HOST]
    assert all(result.started_at and result.elapsed_seconds and "measure" in result.phase_seconds for result in results)
    kind, pairs = echo.EchoRequest.kind(), tuple(zip(asked, results, strict=True))
    assert disk.attempts(study, kind) == pairs
    history = History.read(study, study_request())
    history.add_measured(*pairs[0])
    assert history.of(kind) == (*pairs, pairs[0])


def test_the_simulated_machine_answers_a_new_kind_as_it_is_told_and_otherwise_says_nothing(echo, tmp_path):
    request = echo.EchoRequest(words="hello")
    told = FakeLauncher(results={echo.EchoRequest: lambda asked: echo.EchoResult(outcome=Outcome.OK, said=asked.words)})

    assert told.run(request, tmp_path).said == "hello"
    assert FakeLauncher().run(request, tmp_path).said == ""


@pytest.mark.parametrize("kind", MEASUREMENTS, ids=lambda kind: kind.__name__)
def test_a_worker_that_the_kernel_killed_for_lack_of_memory_is_known_in_every_kind(kind, tmp_path, monkeypatch):
    (tmp_path / "killed.py").write_text(KILLED)
    kills = iter((3, 4))
    monkeypatch.setattr("autotune.launch.subprocess.oom_kills", lambda: next(kills))
    launcher = SubprocessLauncher(command=(sys.executable, str(tmp_path / "killed.py")))

    result = launcher.run(example(kind, "model.py"), tmp_path)

    assert result.outcome is Outcome.OOM_HOST
    assert "a loader worker was killed" in result.failure.evidence


def test_an_interrupt_while_a_new_kind_runs_leaves_no_request(echo, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(SubprocessLauncher, "_start", interrupted)

    with pytest.raises(KeyboardInterrupt):
        SubprocessLauncher().run(echo.EchoRequest(words="hello"), tmp_path)
    assert not (tmp_path / REQUEST).exists()


def test_every_kind_names_its_answer_and_has_a_folder_of_its_own():
    kinds = [request.kind() for request in MEASUREMENTS]

    assert all(isinstance(kind, Kind) and kind.result.__name__ for kind in kinds)
    assert len({kind.result for kind in kinds}) == len({kind.folder for kind in kinds}) == len(MEASUREMENTS)
    assert {kind.folder for kind in kinds} <= set(disk.STUDY_FILES)


def test_the_registry_is_the_only_list_of_all_kinds():
    """Whoever else names every request would have to be edited for a new one."""
    names = {request.__name__ for request in MEASUREMENTS}
    package = Path(autotune.__file__).parent

    lists = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if all(name in (text := path.read_text()) for name in names)  # to parse all files takes seconds
        and names <= {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    }

    assert lists - {"testing/launcher.py"} == {"core/measurements.py"}  # the simulated machine need not know a new one
