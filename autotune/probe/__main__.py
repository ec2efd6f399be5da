"""`python -m autotune.probe FOLDER`: read request.json, do what it asks, leave result.json. Any probe can be re-run so.

Crosses the boundary: the two files, an exit status (0: a result was written, 74: it could not be), and, for the
launcher, a lifeline and a progress pipe. Never: pickles, tensors, exceptions, stdout.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from autotune import codec, failures
from autotune.errors import EnvironmentUnfit, TargetError
from autotune.launch.base import REQUEST, RESULT
from autotune.probe import UnstableTraining
from autotune.probe.lifeline import Progress, harden
from autotune.records import InspectRequest, Request
from autotune.results import Failure, Inspection, Outcome, ProbeResult


def main(arguments: Sequence[str]) -> int:
    """Do one request and return the exit status."""
    options = _parse(arguments)
    progress = Progress(options.progress)
    if options.lifeline is not None:
        harden(options.lifeline, options.parent)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    request = codec.decode((options.folder / REQUEST).read_bytes(), Request)
    answer = _answer(request, progress, started)
    try:
        codec.write(options.folder / RESULT, answer)
    except OSError as error:
        with suppress(OSError):  # the log lies on the same full disk
            print(f"autotune: the result could not be written: {error}", file=sys.stderr, flush=True)
        return failures.EXIT_CANNOT_WRITE
    return 0


def _answer(request: Request, progress: Progress, started: str) -> ProbeResult | Inspection:
    try:
        _import_torch()
        from autotune.probe import run

        if isinstance(request, InspectRequest):
            return run.inspect(request, progress)
        result = run.probe(request, progress)
        progress.phase("done")
        return _stamped(result, progress, started)
    except BaseException as error:  # the one place: whatever happened is the result
        outcome, failure = _judge(error, request, progress.current)
        if isinstance(request, InspectRequest):
            return Inspection(outcome=outcome, failure=failure)
        return _stamped(ProbeResult(outcome=outcome, failure=failure), progress, started)


def _import_torch() -> None:
    """Load torch, or say that this cannot be done here; a broken installation raises errors of any type."""
    try:
        import torch  # noqa: F401
    except Exception as error:
        raise EnvironmentUnfit(
            f"torch cannot be imported: {type(error).__name__}: {error}. Its installation is probably broken, or built "
            f"for another machine. Try `{sys.executable} -c 'import torch'`, and install it again."
        ) from error


def _judge(error: BaseException, request: Request, phase: str) -> tuple[Outcome, Failure]:
    from autotune.targets.frames import user_frames

    meters = sys.modules.get("autotune.probe.meters")  # not loaded if torch could not be
    share = meters.memory_share(request.device or "cpu") if meters else None
    frame, trace = user_frames(error, Path.cwd())
    message = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, EnvironmentUnfit):
        outcome, evidence, message = Outcome.ENVIRONMENT, "looked for before anything ran", str(error)
    elif isinstance(error, UnstableTraining):
        outcome, evidence, message = Outcome.UNSTABLE, "the gradient scaler", str(error)
    else:
        outcome, evidence = failures.classify(failures.describe(error), memory_share=share)
        if isinstance(error, TargetError):
            message, trace = str(error), error.traceback or (trace if frame else "")
        elif outcome is Outcome.USER_ERROR and frame:
            message = f"{frame}: {message}"
    if outcome is not Outcome.USER_ERROR:
        message = message.strip().splitlines()[0]
    return outcome, Failure(phase=phase, message=message, evidence=evidence, traceback=trace, user_frame=frame)


def _stamped(result: ProbeResult, progress: Progress, started: str) -> ProbeResult:
    import msgspec

    seconds = {name: round(value, 3) for name, value in progress.seconds.items()}
    return msgspec.structs.replace(result, phase_seconds=seconds, started_at=started)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m autotune.probe", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lifeline", type=int, help="descriptor that ends when the launcher does")
    parser.add_argument("--progress", type=int, help="descriptor that phases and heartbeats are written to")
    parser.add_argument("--parent", type=int, default=0, help="process id of the launcher")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    with suppress(OSError):  # the same again
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)  # tearing torch down takes half a second and can hang on loader workers (measured)
