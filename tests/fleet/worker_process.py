"""The process of a worker for tests: the real one, whose probes are faulty children, or on a simulated machine."""

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import msgspec

from autotune import interrupts
from autotune.core.measurements import decode
from autotune.fleet.records import Timing
from autotune.fleet.worker import Worker
from autotune.launch.subprocess import SubprocessLauncher
from autotune.testing import FakeLauncher

CHILD = (sys.executable, str(Path(__file__).parents[1] / "faults" / "faulty_child.py"))


class AnyTarget(Worker):
    """Its requests name what their children do, so that they have more than one target."""

    def _accept(self, job, study, target, here):
        return decode(job.request.encode())

    def _carry_out(self, job, request, launcher, folder):
        self._note("began", job)
        try:
            return super()._carry_out(job, request, launcher, folder)
        finally:
            self._note("ended", job)

    def _note(self, what, job):
        with self.diary.open("a") as diary:
            diary.write(f"{what} {job.place} {time.monotonic()}\n")  # one clock for all processes of a machine


class Leisurely(FakeLauncher):
    """Takes long enough to be killed meanwhile."""

    def __init__(self, seconds):
        super().__init__()
        self._seconds = seconds

    def run(self, request, folder):
        time.sleep(self._seconds)
        return super().run(request, folder)


if __name__ == "__main__":
    said = json.loads(sys.argv[1])
    simulated = said.get("simulated")  # seconds that a probe takes
    worker = AnyTarget(
        said["url"],
        said["study"],
        name=said["name"],
        target=None if simulated else "ok",
        tell=lambda text: print(text, flush=True),
        make_launcher=lambda isolation: (
            nullcontext(Leisurely(float(simulated))) if simulated else SubprocessLauncher(command=CHILD)
        ),
        timing=msgspec.convert(said["timing"], Timing),
    )
    worker.diary = Path(said["diary"])
    if said.get("heeds"):
        interrupts.heed()  # as the command does
    worker.serve()
