"""Nothing that all forks of a process would have in common goes unseen before a fork."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="templates need Linux")
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
