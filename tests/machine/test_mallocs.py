"""The allocator of host memory in real processes: what a thread sees of it."""

import os
import subprocess
import sys

import pytest

from autotune.knobs.malloc import GLIBC, LEAST_GLIBC, SETTINGS, VARIABLES
from autotune.machine.mallocs import glibc_version

pytestmark = pytest.mark.skipif(glibc_version() < LEAST_GLIBC, reason="needs glibc 2.35: its heaps are NOT looked at")
SEEN = """
from threading import Thread
from autotune.machine.mallocs import keeps_large_blocks
seen = [keeps_large_blocks()]
thread = Thread(target=lambda: seen.append(keeps_large_blocks()))  # as beside a command, which has the main thread
thread.start()
thread.join()
print(seen)
"""


@pytest.mark.parametrize(("variables", "keeps"), [({}, False), (SETTINGS[GLIBC], True)], ids=["as it is", "keeps"])
def test_whether_glibc_keeps_large_blocks_is_seen_in_every_thread(variables, keeps):
    environ = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    words = [sys.executable, "-c", SEEN]
    told = subprocess.run(words, env={**environ, **variables}, capture_output=True, text=True, check=True)

    assert told.stdout == f"{[keeps, keeps]}\n"
