"""What the monitor of a probe makes of signs of life, read from a real pipe."""

import os
import subprocess
import time

from autotune.core.requests import ProbeBudget
from autotune.launch.monitor import Monitor


def test_signs_of_life_that_wait_to_be_read_are_read_before_a_probe_is_given_up(tmp_path) -> None:
    read, write = os.pipe()
    budget = ProbeBudget(start_deadline_seconds=0.05)
    with subprocess.Popen(["sleep", "0.2"]) as process:
        monitor = Monitor(process, read, budget, tmp_path / "result.json")
        os.write(write, b"phase load\n")
        time.sleep(0.1)  # as a process that is stopped, or gets no core

        monitor.until_end()

    os.close(read), os.close(write)
    assert (monitor.timed_out, monitor.phase) == ("", "load")
