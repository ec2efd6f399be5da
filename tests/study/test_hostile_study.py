"""A study of which every text is hostile goes through every command: what comes out is text, and the same program."""

from __future__ import annotations

import ast
import csv
import io
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from autotune.cli import main
from autotune.core import codec
from autotune.core.records import CheckLine
from autotune.core.requests import ProbeRequest
from autotune.core.results import Failure, LossVerdict, Outcome, ProbeResult, Trial
from autotune.knobs.wording import Framework
from autotune.precision.records import PrecisionCheckRequest
from autotune.sampler.prediction import Prediction
from autotune.study import disk
from autotune.study.recommendation import Achieved, RunnerUp
from tests.commandline import run
from tests.pages import Page
from tests.reporting import config, ladder, measured, paired, recommendation, request, trial
from tests.serving import ask, serving
from tests.test_harmless import BREAKING, LINE_ENDS, STEERING, is_tame
from tests.worlds import earlier

HOSTILE = "x" + "".join(
    f"{part}import os; os.system('id') " for part in (*LINE_ENDS, *BREAKING, *STEERING) if part not in ("\udcff", "\0")
)
FOLDER = HOSTILE.replace("/", "|")[:80]  # the name of a folder has no slash, and 255 bytes at most
Said = Callable[[str], str]


def harmless(text: str) -> str:
    """Of the twin."""
    return text


def hostile(text: str) -> str:
    """Of the other: begins alike, so that it counts as the same kind of text."""
    return f"coding: unicode_escape {text}{HOSTILE}"


def study(folder: Path, said: Said, kept: bool = True) -> Path:
    """A study whose texts are what `said` makes of them, written as a search writes it."""
    asked = request(target=said("model.py"), created_at=said("2026-11-21"))
    names = ("device_name", "torch", "python", "platform", "cpu", "driver", "cuda", "capability", "omp_wait_policy")
    environment = replace(asked.environment, native_dtypes=(said("bfloat16"),), **{name: said(name) for name in names})
    facts = replace(
        asked.facts,
        name=said("ResNet"),
        check_lines=(CheckLine(name=said("loss"), text=said("mse"), inferred=True, override=said("loss(model)")),),
    )
    folder.mkdir(parents=True)
    codec.write(folder / disk.STUDY, replace(asked, environment=environment, facts=facts))
    failure = Failure(
        phase=said("build"), message=said("boom"), evidence=said("Error"), traceback=said("line"), user_frame=said("f")
    )
    broken = ProbeResult(outcome=Outcome.CRASHED, failure=failure, started_at=said("2026"))
    strange = config(amp_dtype=said("int3"))
    for one in (
        *ladder()[:3],
        trial(3, strange, broken),
        trial(4, strange, replace(measured(9), started_at=said("2026"))),
    ):
        probe(folder, one, said)
    verdict = LossVerdict(verdict="ok", values={"amp_dtype": said("int3")}, reason=earlier(said("alike")), batch_size=8)
    best = recommendation(
        study=said("studies/resnet"), target=said("model.py"), model=said("ResNet"), environment=environment,
        stability=earlier(said("finite")), reasons=(earlier(said("held")),),
        warnings=(earlier(said("slow")),), fingerprint=said("H200"),
        measured_at=said("2026-11-21"), certificate=earlier(said("bounded")), loss_verdicts=(verdict,),
        baseline=config(omp_wait_policy=said("active")).values,
        runners_up=(RunnerUp(config=strange, samples_per_second=None, reason=earlier(said("slower"))),),
        achieved=Achieved(
            unit=said("u"), score=1.0, baseline_score=1.0, gain=None, gain_low=None, gain_high=None,
            headline=earlier(said("less memory")),
        ),
    )  # fmt: skip
    compared, answer = paired()
    place = disk.make(folder / PrecisionCheckRequest.FOLDER / "0000")
    codec.write(place / "request.json", replace(compared, target=said("model.py")))
    codec.write(place / "result.json", answer)
    if kept:
        codec.write(folder / disk.BEST, best)
    return folder


def probe(folder: Path, one: Trial, said: Said) -> None:
    """The folder of one probe, its log and what had been expected of it."""
    place = disk.log_of(folder, one.number).parent
    place.mkdir(parents=True)
    asked = ProbeRequest(
        target=said("model.py"), config=one.config, device="cuda:0", number=one.number, purpose=one.purpose
    )
    codec.write(place / "request.json", asked)
    codec.write(place / "result.json", one.result)
    said_before = Prediction(samples_per_second=9, low=8, high=10, memory_share=0.5, fits=0.9, gain=0.1)
    codec.write(place / "prediction.json", said_before)
    disk.log_of(folder, one.number).write_bytes((said("log\n") + said("end")).encode())


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command in a folder with both studies, and gives its output after a look at what else is in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    study(tmp_path / "studies" / FOLDER, hostile)
    study(tmp_path / "studies" / "twin", harmless)
    study(tmp_path / "studies" / "open", hostile, kept=False)

    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["autotune", *words])
        try:
            main()
        except SystemExit as ended:
            assert ended.code in (0, None, 1, 2)
        output = capsys.readouterr()
        assert is_tame(output.out), words
        assert is_tame(output.err), words
        return output.out + output.err

    return run


@pytest.mark.parametrize(
    "words",
    [
        ("show",), ("show", "--failed"), ("show", "--sort", "speed"), ("show", "--probe", "3"), ("show", "--json"),
        ("show", "--probe", "4"), ("show", "--probe", "99"), ("best",), ("best", "--json"), ("log",),
        ("log", "-o", "probes.csv"), ("report",), ("report", "--chart", "throughput"), ("report", "--chart", "nothing"),
        *(("export", "--to", framework) for framework in Framework),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_terminal_is_shown_text_only(told: Callable[..., str], words: tuple[str, ...]) -> None:
    command, *options = words

    shown, twin = told(command, f"studies/{FOLDER}", *options), told(command, "studies/twin", *options)

    assert shown and twin
    if "--json" not in options and "error: " not in twin:  # which may quote several lines
        assert len(shown.splitlines()) == len(twin.splitlines())  # no text makes itself a line


@pytest.mark.parametrize("command", ["best", "export", "best --key amp_dtype"])
def test_an_error_about_the_study_is_text_only(told: Callable[..., str], command: str) -> None:
    open_ended = told(*command.split(), "studies/open")
    missing = told(*command.split(), "studies/\x1b[31mnot\nhere")

    assert "error: " in open_ended and "error: " in missing


def test_one_value_is_one_line(told: Callable[..., str]) -> None:
    best = recommendation(params=config(amp_dtype=hostile("int3")).values)
    codec.write(Path("studies/twin") / disk.BEST, best)

    assert len(told("best", "studies/twin", "--key", "amp_dtype").splitlines()) == 1


NO_PROGRAM = (Framework.DEEPSPEED, Framework.TORCHTITAN)  # JSON, and words for a shell


@pytest.mark.parametrize("framework", [framework for framework in Framework if framework not in NO_PROGRAM])
def test_the_program_is_the_twins(told: Callable[..., str], framework: str) -> None:
    program = told("export", f"studies/{FOLDER}", "--to", framework)

    assert ast.dump(ast.parse(program)) == ast.dump(ast.parse(told("export", "studies/twin", "--to", framework)))


def test_the_words_for_a_shell_are_the_twins(told: Callable[..., str]) -> None:
    one, other = (told("export", f"studies/{name}", "--to", Framework.TORCHTITAN) for name in (FOLDER, "twin"))

    assert shlex.split(one.replace("\\\n", ""), comments=True) == shlex.split(other.replace("\\\n", ""), comments=True)


@pytest.mark.parametrize("framework", list(Framework))
def test_a_device_is_a_text_in_the_program_too(told: Callable[..., str], framework: str) -> None:
    best = recommendation()
    elsewhere = replace(best.environment, device="cpu\"); import os; os.system('id')  #\nimport os\x1b")
    codec.write(Path("studies/twin") / disk.BEST, replace(best, environment=elsewhere))

    output = told("export", "studies/twin", "--to", framework)

    if framework not in (*NO_PROGRAM, Framework.LIGHTNING):  # no program, and a device that it does not know
        nodes = list(ast.walk(ast.parse(output)))
        assert "os" not in {node.id for node in nodes if isinstance(node, ast.Name)}
        assert "os" not in {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}


def test_json_says_what_the_files_hold(told: Callable[..., str]) -> None:
    shown = json.loads(told("best", f"studies/{FOLDER}", "--json"))
    probes = json.loads(told("show", f"studies/{FOLDER}", "--json"))
    both = json.loads(told("compare", f"studies/{FOLDER}", "studies/twin", "--json"))

    assert shown["model"] == hostile("ResNet")
    assert probes[3]["trial"]["result"]["failure"]["message"] == hostile("boom")
    assert both["a"]["request"]["target"] == hostile("model.py")


def test_a_spreadsheet_reads_the_cells_of_the_twin(told: Callable[..., str]) -> None:
    rows, twins = (list(csv.reader(io.StringIO(told("log", f"studies/{name}")))) for name in (FOLDER, "twin"))

    assert [len(row) for row in rows] == [len(row) for row in twins]
    assert all(cell.isprintable() and not cell.startswith(("=", "@")) for row in rows for cell in row)


def test_the_printed_command_is_words_for_a_shell(told: Callable[..., str]) -> None:
    best = recommendation(params=config(omp_wait_policy="passive; id").values, study=f"studies/{FOLDER}")
    codec.write(Path("studies/twin") / disk.BEST, best)

    (line,) = [line for line in told("best", "studies/twin").splitlines() if " export OMP" in line]

    assert shlex.split(line)[1:3] == ["export", "OMP_WAIT_POLICY=passive; id"]


@pytest.mark.parametrize("kept", [True, False])
def test_a_page_has_the_elements_of_the_twin(told: Callable[..., str], tmp_path: Path, kept: bool) -> None:
    pages = []
    for name, said in (("one", hostile), ("other", harmless)):
        place = study(tmp_path / "pages" / name, said, kept)
        told("report", str(place))
        pages.append((place / "report.html").read_bytes().decode())

    # What stands between two backticks is shown as code: the one element that a text may make.
    one, other = ([(tag, *found) for tag, found in Page(page).elements if (tag, *found) != ("code",)] for page in pages)
    assert one == other
    assert is_tame(pages[0])


def test_a_comparison_is_text_only(told: Callable[..., str], tmp_path: Path) -> None:
    told("compare", f"studies/{FOLDER}", "studies/twin")
    told("compare", f"studies/{FOLDER}", "studies/twin", "-o", "both.html")

    assert is_tame((tmp_path / "both.html").read_bytes().decode())


def test_the_dashboard_serves_text_only(told: Callable[..., str], tmp_path: Path) -> None:
    places = [
        "/",
        "/studies/twin/",
        "/studies/open/",
        "/compare?a=open&b=twin",
        "/studies/open/probes/0003/log.txt",
    ]
    damaged = tmp_path / "studies" / f"{FOLDER}2"
    damaged.mkdir()
    (damaged / disk.STUDY).write_text("{")

    with serving(tmp_path / "studies") as server:
        answers = [ask(server, place) for place in places]

    assert [status for status, *_ in answers] == [200] * len(places)
    assert [place for place, (*_, body) in zip(places, answers, strict=True) if not is_tame(body)] == []


@pytest.mark.slow
def test_what_a_target_raises_is_text_only(told: Callable[..., str], tmp_path: Path) -> None:
    program = "def model(): raise ValueError('\\x1b]0;title\\x07 \\u202e \\x9b31m boom')\n"
    (tmp_path / "evil.py").write_text(program + "def dataset(): return [1, 2]\n")

    output = told("check", "evil.py")

    assert "boom" in output and "evil.py" in output


@pytest.mark.parametrize("command", ["best", "export", "show"])
def test_a_stream_that_takes_ascii_only_is_told_the_rest_by_number(tmp_path: Path, command: str) -> None:
    study(tmp_path / "studies" / "twin", harmless)

    done = run(tmp_path, command, "studies/twin", PYTHONIOENCODING="ascii")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
