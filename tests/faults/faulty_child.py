"""A probe without torch that goes wrong as its request's target says: the launcher's opponent in the fault tests."""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from autotune.child.fork_server import leave, serve
from autotune.child.lifeline import Progress, harden
from autotune.core import codec
from autotune.core.forking import Ready
from autotune.core.measurements import decode
from autotune.core.records import Environment, TargetFacts
from autotune.core.requests import InspectRequest, ProbeRequest
from autotune.core.results import Failure, Inspection, Measurement, MemoryPeak, Outcome, ProbeResult
from autotune.gradient_noise.records import GradientSample, NoiseScaleRequest, NoiseScaleResult
from autotune.launch.base import REQUEST, RESULT
from autotune.memory.model import Arm
from autotune.memory.records import ShapeRun, ShapeRunRequest
from autotune.precision.records import LossRun, PrecisionCheckRequest, PrecisionCheckResult

OK = ProbeResult(
    outcome=Outcome.OK,
    measurement=Measurement(
        samples=(8, 8),
        step_seconds=(0.1, 0.1),
        loader_wait_seconds=(0.0, 0.0),
        losses=(1.0, 0.9),
        warmup_seconds=(),
        memory=MemoryPeak(process_bytes=1),
    ),
)
COMPARISON = PrecisionCheckResult(outcome=Outcome.OK, runs=(LossRun(role="reference", seed=0, losses=(1.0, 0.9)),))
GRADIENTS = NoiseScaleResult(
    outcome=Outcome.OK,
    sample=GradientSample(losses=(1.0, 0.9), has_fallen=True, samples=(8,), squared_norms=(2.0,), alignments=(2.0,)),
)
SHAPE_RUN = ShapeRun(outcome=Outcome.OK, arms=(Arm(values={}, points=((8, 1),)),))
INSPECTION = Inspection(
    environment=Environment(
        device="cpu",
        device_name="tiny",
        device_bytes=1,
        native_dtypes=(),
        torch="none",
        python="3",
        platform="test",
        usable_cores=1,
        host_bytes=1,
    ),
    facts=TargetFacts(
        name="Tiny", parameter_count=1, has_convolution=False, has_batch_norm=False, data="batch", dataset_samples=None
    ),
)


def hang(progress: Progress) -> None:
    progress.phase("build")
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # holds the log open
    waiting_for_a_lock()


def hang_after_setsid(progress: Progress) -> None:
    progress.phase("build")
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    waiting_for_a_lock()


def hang_after_a_clean_start(progress: Progress) -> None:
    """A stray without our tag and without a living parent: only the process group tells that it is ours."""
    subprocess.run(["/bin/sh", "-c", 'sleep 600 & echo $! > "$0"', str(FOLDER / "stray")], env={}, check=True)
    progress.phase("build")
    waiting_for_a_lock()


def waiting_for_a_lock() -> None:
    time.sleep(600)


def drop_descriptors(progress: Progress) -> None:
    os.closerange(3, 256)
    progress.phase("measure")
    progress.beat()
    time.sleep(1.5)  # silent for longer than the deadline of a phase


def measure(progress: Progress) -> None:
    """Measures for half a second, and then has other things to do."""
    progress.phase("measure")
    time.sleep(0.5)
    progress.phase("validate")


def take_long(progress: Progress) -> None:
    """Takes long enough for something to happen meanwhile."""
    progress.phase("measure")
    for _ in range(30):
        time.sleep(0.1)
        progress.beat()


def crash_late(progress: Progress) -> None:
    progress.phase("warm-up")
    progress.beat()
    os.abort()


def spam(progress: Progress) -> None:
    for _ in range(20):
        print("x" * 2**20)
    print("the last words")


def garbage(progress: Progress) -> None:
    os.write(1, bytes(range(256)) * 64)
    os.kill(os.getpid(), signal.SIGKILL)


def leave_half_a_result(progress: Progress) -> None:
    (FOLDER / RESULT).write_bytes(codec.encode(OK)[:60])
    os._exit(0)


def fill_the_disk(progress: Progress) -> None:
    with (FOLDER / "ballast").open("wb", buffering=0) as ballast:
        size = 2**16
        while size:
            try:
                ballast.write(b"x" * size)
            except OSError:
                size //= 2
    os._exit(74)


def linger(progress: Progress) -> None:
    """Leaves its result, and then a descendant that outlives it."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)


def creep(progress: Progress) -> None:
    """Takes ever more memory, in pieces that no limit on one allocation would notice."""
    kept = []
    for _ in range(4096):
        kept.append(b"x" * 2**20)
        time.sleep(0.002)


def leave_workers(progress: Progress) -> None:
    for _ in range(4):
        if os.fork() == 0:
            time.sleep(600)
    os._exit(3)


def abort_without_memory(progress: Progress) -> None:
    sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n")
    os.abort()


def refuse_another_process(progress: Progress) -> None:
    if os.getpid() != BORN:
        failure = Failure(phase="load", message="not where I was imported", evidence="raised")
        codec.write(FOLDER / RESULT, ProbeResult(outcome=Outcome.USER_ERROR, failure=failure))
        os._exit(0)


FAULTS = {
    "segfault": lambda _: ctypes.string_at(0),
    "late-crash": crash_late,
    "abort": lambda _: os.abort(),
    "abort-without-memory": abort_without_memory,
    "vanish": lambda _: os._exit(0),
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "terminate": lambda _: os.kill(os.getpid(), signal.SIGTERM),
    "bus-error": lambda _: os.kill(os.getpid(), signal.SIGBUS),
    "exit-3": lambda _: sys.exit(3),
    "raise": lambda _: 1 / 0,
    "hang": hang,
    "hang-after-setsid": hang_after_setsid,
    "hang-after-a-clean-start": hang_after_a_clean_start,
    "drop-descriptors": drop_descriptors,
    "spam": spam,
    "garbage": garbage,
    "half-a-result": leave_half_a_result,
    "fill-the-disk": fill_the_disk,
    "linger": linger,
    "creep": creep,
    "cannot-write": lambda _: os._exit(74),
    "leave-workers": leave_workers,
    "measure": measure,
    "long": take_long,
    "bound-to-its-process": refuse_another_process,
    "ok": lambda _: None,
}

FOLDER, BORN = Path(), os.getpid()


def main(arguments: Sequence[str]) -> int:
    global FOLDER
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?")
    for name in ("--lifeline", "--progress", "--parent", "--fork-server"):
        parser.add_argument(name, type=int)
    options = parser.parse_args(arguments)
    if options.fork_server is not None:
        serve(options.fork_server, options.lifeline, main, lambda imports, own: Ready())
        return 0
    FOLDER = options.folder
    progress = Progress(options.progress)
    harden(options.lifeline, options.parent)
    request = decode((FOLDER / REQUEST).read_bytes())
    progress.phase("load")
    FAULTS[request.target or "ok"](progress)
    results = {
        ProbeRequest: OK, InspectRequest: INSPECTION, PrecisionCheckRequest: COMPARISON, NoiseScaleRequest: GRADIENTS,
        ShapeRunRequest: SHAPE_RUN,
    }  # fmt: skip
    codec.write(FOLDER / RESULT, results.get(type(request)) or type(request).kind().result(outcome=Outcome.OK))
    return 0


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
