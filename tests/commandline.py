"""Runs the real `autotune` command in a process of its own, and finds whatever it leaves behind."""

from __future__ import annotations

import functools
import io
import os
import pty
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import typer

from autotune.cli import main
from autotune.core.probe_tag import TAG
from autotune.core.requests import ProbeBudget
from autotune.launch.subprocess import SubprocessLauncher
from tests.session_launcher import MARK

COMMAND = (sys.executable, "-m", "autotune")
# Searches that are brief, however long their time budget is, and so need no luck on a slow or busy machine: they
# measure for a fraction of a second, confirm in few rounds and hardly wait for others.
PROBE_BUDGET = ProbeBudget(
    min_warmup_seconds=0.1, max_compute_seconds=0.05, max_loader_seconds=0.1, min_seconds=0.2, max_seconds=0.3,
    min_steps=4,
)  # fmt: skip
Values = Mapping[str, Mapping[str, str]]  # what names of a module are to be, as Python's text
BRIEFLY: Values = {
    "autotune.objectives.base": {"Objective.probe_budget": f"{PROBE_BUDGET}"},
    "autotune.context.budget": dict.fromkeys(("SEARCH", "BRIEF", "LEAST"), f"{PROBE_BUDGET}"),
    "autotune.context.probe_budgets": dict.fromkeys(("BRIEF", "LEAST"), f"{PROBE_BUDGET}"),
    "autotune.context.time_shares": {"MOST_WAITING": "0.0"},
    "autotune.answer.confirmation_rounds": dict.fromkeys(
        ("USUAL_ROUNDS", "MOST_CONFIRMATION_ROUNDS", "GOAL_ROUNDS"), "4"
    ),
    "autotune.tuning.baseline": {"BASELINE_PAUSES_SECONDS": "(0.0, 0.1, 0.1, 0.1)"},
    "autotune.tuning.probing": {"BACK_OFF_SECONDS": "0.1"},
}
TWO_ROUNDS: Values = {
    "autotune.answer.confirmation_rounds": dict.fromkeys(
        ("USUAL_ROUNDS", "MOST_CONFIRMATION_ROUNDS", "GOAL_ROUNDS"), "2"
    )
}
# Takes every probe as it was measured: the machine that runs the tests is often too busy for a baseline that is known
# to 10 %, and repeats of what had interference would be as many probes again.
BELIEVING: Values = {
    "autotune.tuning.baseline": {"is_known": "bool"},
    "autotune.tuning.probing": {"interference_causes": "lambda _: ()"},
}


def brief(*several: Values) -> str:
    """The command as a program for `python -c` that puts these values in their places first."""
    lines = ["from autotune.cli import main", "from autotune.core.requests import ProbeBudget"]
    for module, values in [one for some in several for one in some.items()]:
        lines.append(f"import {module} as module")
        lines += [f"module.{name} = {value}" for name, value in values.items()]
    return "\n".join([*lines, "main()"])


SEARCH = (sys.executable, "-c", brief(BRIEFLY, BELIEVING))
SHORTEST = (sys.executable, "-c", brief(BRIEFLY, BELIEVING, TWO_ROUNDS))  # where it does not matter who is found


@contextmanager
def briefly(*more: Values) -> Iterator[None]:
    """Searches of this process are such for a while."""
    with ExitStack() as stack:
        for module, values in [one for some in (BRIEFLY, BELIEVING, *more) for one in some.items()]:
            for name, value in values.items():
                stack.enter_context(mock.patch(f"{module}.{name}", eval(value)))
        yield


PATIENCE_SECONDS = 60.0

TARGET = """\
import torch
from torch import nn
from torch.utils.data import TensorDataset

def model(): return nn.Linear(8, 2)
def dataset(): return TensorDataset(torch.randn(512, 8), torch.randint(2, (512,)))
baseline = {"batch_size": 64}
space = {"batch_size": [1, 2, 4, 8, 16, 32, 64], "amp_dtype": [None], "num_workers": [0],
         "omp_wait_policy": [None], "malloc": [None], "compile_mode": [None]}  # what takes seconds to start
"""


def environment(home: Path, **more: str) -> dict[str, str]:
    """This process's environment without anybody's settings for autotune, for threads or for colours."""
    foreign = ("AUTOTUNE_", "OMP_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**inherited, "TERM": "xterm-256color", MARK: str(home), **more}


def command(*words: str) -> tuple[str, ...]:
    """What starts `autotune *words`."""
    return (*(SEARCH if words[0] == "search" else COMMAND), *words)


def run(
    home: Path, *words: str, program: tuple[str, ...] | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """`autotune *words` in folder `home` with plain pipes; `more` are environment variables."""
    line = command(*words) if program is None else (*program, *words)
    return subprocess.run(line, cwd=home, env=environment(home, **more), capture_output=True, text=True, check=False)


@contextmanager
def variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """These environment variables and no others, for a while; those that are the same already are not touched."""
    before = dict(os.environ)
    _become(wanted)
    try:
        yield
    finally:
        _become(before)


def _become(wanted: Mapping[str, str]) -> None:
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


class Stream(io.TextIOWrapper):
    """A stream as a terminal's: bytes below, strict UTF-8 above."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def text(self) -> str:
        """All that was written."""
        return self.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]


TREE = functools.cache(typer.main.get_command)  # of commands; typer builds all of it again for every call


lent: Callable[..., Any] = SubprocessLauncher  # what makes a launcher for a command: of the session's, by `conftest.py`


def run_here(
    home: Path, *words: str, launcher: Callable[..., Any] | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """The same as `run`, in this process: where it is not the process that is tested.

    Probes are real ones, forked by the launcher of the session, unless `launcher` makes another.
    """
    out, err = Stream(), Stream()
    status: object = 0
    with (
        variables(environment(home, **more)),
        mock.patch.object(sys, "argv", ["autotune", *words]),
        mock.patch("typer.main.get_command", TREE),
        # Where commands import it from when they run, and where it was imported before, perhaps by another test.
        mock.patch("autotune.launch.subprocess.SubprocessLauncher", launcher or lent),
        mock.patch("autotune.preparation.launching.SubprocessLauncher", launcher or lent),
        mock.patch("signal.signal"),  # `search` takes SIGTERM for itself
        mock.patch("os.nice"),  # `dashboard` takes the lowest priority, and never gives it back
        chdir(home),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ending:
            status = ending.code
    code = status if isinstance(status, int) else 0 if status is None else 1
    return subprocess.CompletedProcess(words, code, out.text(), err.text())


def start(home: Path, *words: str) -> subprocess.Popen[str]:
    """The same without waiting for its end; both streams go to one pipe."""
    return subprocess.Popen(
        command(*words),
        cwd=home,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_on_terminal(home: Path, columns: int, *words: str, **more: str) -> tuple[subprocess.Popen[bytes], int]:
    """The same on a pseudo-terminal of that width, in a session of its own; also what reads from the terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command(*words), cwd=home, env=environment(home, COLUMNS=str(columns), **more),
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    return process, master


def processes(home: Path) -> list[psutil.Process]:
    """The living processes that runs in `home` started."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def probes(home: Path) -> list[psutil.Process]:
    """Those of them that belong to a probe."""
    found = []
    for process in processes(home):
        with suppress(psutil.Error):
            if TAG in process.environ():
                found.append(process)
    return found


def wait_until(happened: Callable[[], object], why: str) -> None:
    """Come back when it happened; far later than any run takes, fail."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < give_up, why
        time.sleep(0.02)


def listing(folder: Path, leaving_out: Iterable[Path] = ()) -> set[str]:
    """Every file and folder below `folder`, as text."""
    apart = tuple(leaving_out)
    return {str(path) for path in folder.rglob("*") if not any(path.is_relative_to(other) for other in apart)}


def assert_one_clear_error(ended: subprocess.CompletedProcess[str], status: int = 2) -> str:
    """Exit status, an empty standard output, one message of three sentences or more, no traceback of ours."""
    assert ended.returncode == status, ended.stderr
    assert ended.stdout == ""
    assert ended.stderr.count("error: ") == 1
    assert "Traceback (most recent call last)" not in ended.stderr
    message = ended.stderr.partition("error: ")[2].partition("\nFull log:")[0].strip()
    sentences = [part for part in message.replace("? ", ". ").split(". ") if part.strip()]
    assert len(sentences) >= 3, message
    return message


def stub_training_arguments(folder: Path, body: str) -> None:
    """Make a package `transformers` in `folder`, with nothing but a class of this body for its arguments."""
    package = folder / "transformers"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "training_args.py").write_text(f"class TrainingArguments:\n{textwrap.indent(body, '    ')}")
