"""The process of a worker for tests: the real one, but its probes are faulty children, which their targets name."""

import json
import sys
from pathlib import Path

import msgspec

from autotune.core.measurements import decode
from autotune.fleet.records import Timing
from autotune.fleet.worker import Worker
from autotune.launch.subprocess import SubprocessLauncher

CHILD = (sys.executable, str(Path(__file__).parents[1] / "faults" / "faulty_child.py"))


class AnyTarget(Worker):
    """Its requests name what their children do, so that they have more than one target."""

    def _accept(self, order, card, target, here):
        with self.diary.open("a") as diary:
            diary.write(f"began {order.place}\n")
        return decode(order.request.encode())


if __name__ == "__main__":
    said = json.loads(sys.argv[1])
    worker = AnyTarget(
        said["url"],
        said["study"],
        name=said["name"],
        target="ok",
        tell=lambda text: print(text, flush=True),
        make_launcher=lambda isolation: SubprocessLauncher(command=CHILD),
        timing=msgspec.convert(said["timing"], Timing),
    )
    worker.diary = Path(said["diary"])
    worker.serve()
