"""The thread that waits for a program in the main thread: what ends it ends the process."""

import subprocess
import sys

FAILS = """
from autotune.targets.commands.watching import main_thread
main_thread.lend(lambda: 1 / 0)
"""


def test_work_that_fails_ends_the_process_that_would_wait_for_it():
    ended = subprocess.run([sys.executable, "-c", FAILS], capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 1
    assert "ZeroDivisionError" in ended.stderr
