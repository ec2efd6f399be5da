"""What was written for GPUs without one, asked of a real one: ten questions, each with what its answer decides.

    python -m benchmarks.gpu_questions [--only events,kill] [--minutes 6] [--json answers.json] [--device cuda]

From the root of the repository. Each question runs in a process of its own under a time limit, so that none can end or
hold up the others, and what it cannot answer is answered with "not run" and why. Under six minutes in all. On a CPU
(`--device cpu`) those that make sense there are rehearsed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.core import codec
from autotune.core.records import Environment
from autotune.core.requests import InspectRequest
from autotune.launch.subprocess import SubprocessLauncher
from benchmarks.questions import Answer, Answers, NotRun, Question
from benchmarks.surfaces.words import there

LOG_CHARACTERS = 4000  # of the end of what a failed question's process wrote
ASKED = "--asked"  # marks the process of one question


def questions() -> tuple[Question, ...]:
    """All of them, in the order of asking. Imports torch, and touches no device."""
    from benchmarks.questions import arithmetic, clocks, frontier, gpu, provoked, starting

    return (
        Question(
            name="context",
            what="what import, CUDA context and libraries cost a child",
            decides="ProbeBudget.start_deadline_seconds (core/requests.py), FIRST_GUESS_SECONDS (study/probe_times.py)",
            ask=starting.context,
            seconds=90.0,
        ),
        Question(
            name="events",
            what="a window by events against the wall, and against waiting after each step",
            decides="EventClock, not SynchronizingClock, for CUDA (child/clock.py)",
            ask=clocks.events,
        ),
        Question(
            name="exhaustion",
            what="every way to run out of memory",
            decides="the rules of OOM_DEVICE and OOM_HOST, and NEAR_LIMIT (failures/rules.py, failures/classify.py)",
            ask=provoked.exhaustion,
            seconds=150.0,
        ),
        Question(
            name="codes",
            what="error_code of AcceleratorError",
            decides="CODES (failures/rules.py) before any message",
            ask=provoked.codes,
        ),
        Question(
            name="headroom",
            what="which figure of memory predicts the batch that dies",
            decides="MemoryPeak.bytes (core/results.py); HEADROOM_FRACTION, LEAST_HEADROOM_BYTES (preparation/)",
            ask=frontier.headroom,
            seconds=90.0,
        ),
        Question(
            name="dropout",
            what="dropout masks of float32 against half precision",
            decides="one paired seed is enough with dropout (precision/child.py, precision/judge.py)",
            ask=arithmetic.dropout,
        ),
        Question(
            name="waits",
            what="where our loop waits for the device",
            decides='"nothing here waits" (targets/loop.py)',
            ask=arithmetic.waits,
        ),
        Question(
            name="launches",
            what="whether the host holds the device up, seen from the end of a window",
            decides="a sign for launch-bound runs, not there yet (child/window.py, answer/reasons.py)",
            ask=clocks.launches,
        ),
        Question(
            name="nvml",
            what="NVML's fields, their time and their agreement",
            decides="Gpu and GpuReading (machine/nvml.py), PERIOD_SECONDS (launch/telemetry.py)",
            ask=gpu.readings,
        ),
        Question(
            name="kill",
            what="memory after SIGKILL in the middle of a kernel",
            decides="no pause between two probes (launch/subprocess.py)",
            ask=starting.kill,
        ),
    )


def asked(question: Question, device: str) -> Iterator[dict[str, Any]]:
    """In the question's own process: all that is known of its answer, again with every line that comes."""
    lines: list[str] = []
    try:
        for line in question.ask(device):
            lines.append(line)
            yield {"lines": lines}
    except NotRun as reason:
        yield {"lines": lines, "not_run": str(reason)}
    except Exception as error:  # whatever it dies of belongs to the answer
        traceback.print_exc()
        yield {"lines": lines, "not_run": f"{type(error).__name__}: {error}"[:300]}


def answered(question: Question, device: str, limit: float) -> Answer:
    """In the parent: one question, at most so many seconds long."""
    command = [sys.executable, "-m", "benchmarks.gpu_questions", ASKED, question.name, "--device", device]
    began, late = time.monotonic(), ""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        try:
            out, log = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            late = f"no answer in {limit:.0f} s"
            _end(child)
            out, log = child.communicate()
        finally:
            _end(child)
    words = [line for line in out.splitlines() if line.startswith("{")]
    last = (log.strip().splitlines() or ["no words"])[-1]
    died = f"its process ended with status {child.returncode}: {last[:200]}" if child.returncode else ""
    found = json.loads(words[-1]) if words else {}
    if log and (died or "not_run" in found):
        print(log[-LOG_CHARACTERS:], file=sys.stderr, flush=True)  # where it happened: a GPU may not be there twice
    return Answer(
        name=question.name, what=question.what, decides=question.decides, seconds=time.monotonic() - began,
        lines=tuple(found.get("lines", ())), not_run=late or found.get("not_run", "") or died,
    )  # fmt: skip


def _end(child: subprocess.Popen[str]) -> None:
    """The process and those that it started; nothing where all have left."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        child.wait()


def shown(answer: Answer, number: int) -> str:
    """As it is printed."""
    lines = [f"   {line}" for line in (*answer.lines, *([f"not run: {answer.not_run}"] if answer.not_run else []))]
    return "\n".join(
        [f"{number}. {answer.name}: {answer.what} ({answer.seconds:.0f} s)", *lines, f"   decides: {answer.decides}"]
    )


def look(device: str) -> Environment | str:
    """The device as a probe sees it, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        inspection = SubprocessLauncher().run(InspectRequest(device=device), Path(folder))
    if inspection.environment is None:
        return inspection.failure.message if inspection.failure else inspection.outcome.value
    return inspection.environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, with commas")
    parser.add_argument("--minutes", type=float, default=6.0, help="for all questions together")
    parser.add_argument("--json", type=Path, help="keep the answers in this file")
    parser.add_argument("--device", default="cuda")
    parser.add_argument(ASKED, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.asked:
        question = next(one for one in questions() if one.name == options.asked)
        for known in asked(question, options.device):
            print(json.dumps(known), flush=True)
        os._exit(0)  # a poisoned context may not let go in peace
    ends_at = time.monotonic() + 60 * options.minutes
    found = look(options.device)
    told = found if isinstance(found, str) else there(found)
    print(told, flush=True)
    wanted = options.only.split(",") if options.only else [question.name for question in questions()]
    answers: list[Answer] = []
    for question in (one for one in questions() if one.name in wanted):
        limit = min(question.seconds, ends_at - time.monotonic())
        why = found if isinstance(found, str) else "no time left" if limit <= 0 else ""
        unasked = Answer(name=question.name, what=question.what, decides=question.decides, not_run=why)
        answers.append(unasked if isinstance(found, str) or why else answered(question, found.device, limit))
        print(f"\n{shown(answers[-1], len(answers))}", flush=True)
        if options.json:
            codec.write(options.json, Answers(machine=told, answers=tuple(answers)))


if __name__ == "__main__":
    main()
