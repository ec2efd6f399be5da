"""One real search of a target in a process of its own, quiet or beside a load; a search that fails is a result."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil

import autotune
from autotune.report.phrases import headline
from autotune.study.disk import BEST
from autotune.study.recommendation import Recommendation
from benchmarks.answers_check.records import Search
from benchmarks.answers_check.targets import Target

ERROR = "error: "  # the line of the command line that says why
RUNS = "runs"  # folder of studies and of what the searches said
LATEST = 5.0  # times the budget after which a search hangs, with two minutes for what it does before
WAITED_SECONDS = 30.0  # for a search that was told to end
LOOK_SECONDS = 1.0  # at who else uses the cores
OPEN = ("undecided", " for now: ", "no other configuration ran")  # in the headline of an answer that is open
BUSY = "import os\nwhile os.getppid() == {parent}:\n for _ in range(100_000): pass"  # ends with its parent


def searched(target: Target, number: int, seconds: float, folder: Path) -> Search:
    """Run the search with that number, 0 beside a load, and read its answer."""
    name = f"{target.name}-{number or 'load'}"
    study = folder / RUNS / name
    study.parent.mkdir(parents=True, exist_ok=True)
    command = (sys.executable, "-m", "autotune", *target.command(study, seconds))
    print(shlex.join(command[1:]), file=sys.stderr, flush=True)
    busy = busy_share()
    with load() if number == 0 else contextlib.nullcontext():
        began = time.monotonic()
        failure = _run(command, study.with_suffix(".txt"), LATEST * seconds + 120)
        took = time.monotonic() - began
    search = Search(
        number=number, seconds=round(took, 2), failure=failure, busy=busy, commit=_commit(),
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
    return search if failure else with_answer(search, study)


def with_answer(search: Search, study: Path) -> Search:
    """The search with what its study recommends; a failed one if that cannot be read."""
    fields = {name: getattr(search, name) for name in search.__struct_fields__}
    try:
        best = autotune.load_result(study)
    except autotune.AutotuneError as error:
        return Search(**{**fields, "failure": str(error)[:200]})
    others = sorted(best.confirmations, key=lambda one: -one.samples_per_second)
    return Search(
        **{
            **fields,
            "values": best.params,
            "baseline": best.baseline,
            "others": tuple(one.config.values for one in others if one.config.values != best.params),
            "refused": tuple(one.values for one in best.loss_verdicts if one.excludes),
            "undecided": undecided(best, study),
            "speedup": best.speedup,
            "probes": best.probes,
        }
    )


def undecided(best: Recommendation, study: Path) -> str:
    """Between what the answer is undecided, in its own words; empty: it is decided.

    A field of best.json whose name begins with `undecided`, or a headline that does, or that keeps the baseline "for
    now" or because nothing else ran: the only place to adapt where an answer says it differently.
    """
    document = json.loads((study / BEST).read_bytes())
    field = next((value for name, value in document.items() if name.startswith("undecided") and value), "")
    said = headline(best)
    return said if any(part in said for part in OPEN) else str(field)[:200]


def busy_share() -> float:
    """Share of all cores that is in use now."""
    return round(float(psutil.cpu_percent(interval=LOOK_SECONDS)) / 100, 3)


@contextlib.contextmanager
def load() -> Iterator[None]:
    """Keep one core busy: the last that this process may use, where processes can be bound to one."""
    process = subprocess.Popen([sys.executable, "-c", BUSY.format(parent=os.getpid())])
    try:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
        yield
    finally:
        process.kill()
        process.wait()


def _run(command: tuple[str, ...], said: Path, most_seconds: float) -> str:
    """Run a search to its end. Returns why it has no answer; empty: it has."""
    errors = said.with_suffix(".log")
    with said.open("wb") as output, errors.open("wb") as log:
        process = subprocess.Popen(command, stdout=output, stderr=log, start_new_session=True)
        try:
            status = process.wait(timeout=most_seconds)
        except subprocess.TimeoutExpired:
            return f"no end after {most_seconds:.0f} s"
        finally:
            _end(process)
    if status == 0:
        return ""
    told = errors.read_text(errors="replace").strip().splitlines() or [""]
    why = next((line for line in reversed(told) if line.startswith(ERROR)), told[-1])
    return f"exit status {status}: {why.removeprefix(ERROR).strip()}"[:200]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of a search behind: first politely, so that it ends its probes and keeps its study."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=WAITED_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _commit() -> str:
    """Of the repository that was searched with; empty where that is none."""
    command = ("git", "describe", "--always", "--dirty")
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return ""
