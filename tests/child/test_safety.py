"""Nothing that all forks of a process would have in common goes unseen before a fork."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from autotune.child import library_threads
from autotune.core.probe_tag import TAG

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fork servers need Linux")
LOOK = "from autotune.child.safety import unsafe; print(unsafe(own, probes))"


def told(code: str) -> str:
    """What a process that has run the code is found to be; pytest itself has much open."""
    command = [sys.executable, "-c", f"import os, subprocess\nown, probes = (), ()\n{code}\n{LOOK}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("pass", ""),
        ("own = os.pipe()", ""),
        ("kept = os.pipe()", "has opened pipe:"),
        ("kept = open(os.__file__)", "has opened /"),
        ("kept = open('/dev/null')", "has opened /dev/null"),
        ("kept = os.dup(1)", "has opened pipe:"),
        ("kept = open('/dev/urandom')", ""),
        ("kept = subprocess.Popen(['sleep', '600'])", "has started process "),
        ("kept = subprocess.Popen(['sleep', '1']); probes = [kept.pid]", ""),
        ("import multiprocessing; kept = multiprocessing.Lock()", "has writable memory that its forks would share"),
        ("import mmap; kept = mmap.mmap(-1, 4096)", "has writable memory that its forks would share"),
        ("import mmap; kept = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE)", ""),
    ],
)  # fmt: skip
def test_what_forks_would_have_in_common_is_seen(code: str, reason: str) -> None:
    if "Popen" in code and reason:
        code += "\nimport atexit; atexit.register(kept.kill)"

    found = told(code)

    assert found.startswith(reason) if reason else found == ""


CARRY = """
from autotune.core.probe_tag import TAG
from autotune.child.fork_server import _carry
try:
    _carry("b" * 8)
except OSError as error:
    print(error.strerror)
print(f"{TAG}={'b' * 8}".encode() in open("/proc/self/environ", "rb").read())
"""


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("", ["True"]),
        (
            "import os; kept = dict(os.environ); os.environ.clear(); os.environ.update(kept)",
            ["an import has moved its environment variables", "False"],
        ),
    ],
)
def test_a_fork_that_cannot_be_told_from_its_fork_server_is_refused(code: str, told: list[str]) -> None:
    environ = {**os.environ, TAG: "a" * 8}
    command = [sys.executable, "-c", code + CARRY]

    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout.splitlines()

    assert found == told


STATEMENTS = {
    "import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()": "has 2 threads",
    "import builtins, socket; builtins.kept = socket.socket()": "has opened socket:",
    "raise ValueError": "failed with ValueError",
    "import sys; assert sys.argv == ['model.py']": "",  # a library sees the target as its command line
    "import os; assert os.environ['JE_ARROW_MALLOC_CONF'] == 'background_thread:false'": "",  # read by pyarrow
}
# Prepares a fork server for each in a process of its own; torch is imported once for all.
PREPARE = f"""
import os, sys
from autotune.child import fork_server, library_threads
from autotune.core.forking import Imports
fork_server.prepare(Imports(), frozenset())
for statement in {list(STATEMENTS)!r}:
    if os.fork() == 0:
        asked = Imports(statements=("import json", statement, "import html"), program="model.py")
        found = fork_server.prepare(asked, frozenset())
        print(found.safe_statements, sys.argv, found.unsafe, flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.parametrize("own", [None, "background_thread:true"])
def test_what_keeps_libraries_from_starting_threads_is_taken_back(own: str | None, monkeypatch: Any) -> None:
    monkeypatch.delenv("JE_ARROW_MALLOC_CONF", raising=False)
    if own:
        monkeypatch.setenv("JE_ARROW_MALLOC_CONF", own)
    before = dict(os.environ)

    with library_threads.no_library_threads():
        during = os.environ["JE_ARROW_MALLOC_CONF"], os.environ["OPENBLAS_NUM_THREADS"]

    assert during == (own or "background_thread:false", "1")
    assert dict(os.environ) == before


@pytest.mark.slow
def test_a_fork_server_prepares_what_is_safe_and_says_what_is_not() -> None:
    told = subprocess.run([sys.executable, "-c", PREPARE], capture_output=True, text=True, check=True).stdout

    for (statement, reason), line in zip(STATEMENTS.items(), told.splitlines(), strict=True):
        expected = f"1 ['-c'] after `{statement}` the fork server {reason}" if reason else "None ['-c'] "
        assert line.startswith(expected) if reason else line == expected
