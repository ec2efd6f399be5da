"""`python -m autotune.child FOLDER` reads request.json, does what it asks, and writes result.json.

Any probe can be run again in this way. Only these cross the process boundary: the two files, an exit status (0: a
result was written, 74: it could not be written), and, for the launcher, a lifeline and a progress pipe. Pickles,
tensors, exceptions and stdout never do.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from autotune.child import UnstableTraining, fork_server
from autotune.child.collector import uncollected
from autotune.child.library_threads import give_threads_back
from autotune.child.lifeline import Progress, harden
from autotune.child.ranks import group, rank
from autotune.core import codec
from autotune.core.measurements import MEASUREMENTS, decode
from autotune.core.memory_breakdown import ALLOCATION_SITES
from autotune.core.probe_tag import TAG
from autotune.core.requests import Request
from autotune.core.results import Failure, Outcome, Result
from autotune.core.socket_folders import new_socket_folder
from autotune.errors import EnvironmentUnfit, TargetError
from autotune.failures import classify
from autotune.knobs import environ
from autotune.launch.base import REQUEST, RESULT
from autotune.launch.files import COMPILED, cache_of
from autotune.targets import variables
from autotune.targets.base import SharedMemoryTooSmall
from autotune.targets.commands import hygiene
from autotune.targets.commands.command import is_command
from autotune.targets.commands.distributed import device_of_rank, world_size
from autotune.targets.commands.program import of_ranks
from autotune.targets.commands.watching import main_thread

RequestHandler = Callable[..., Result]  # takes a request and its progress
_PROCESS: dict[str, Any] = multiprocessing.current_process()._config  # type: ignore[attr-defined]  # workers inherit it
# Frames of a failed run hold tensors. Freeing page-locked ones of a dead device throws in a C++ destructor, and the
# process would abort before its result is written (torch 2.11, c10/cuda/CUDAEvent.h, `record`).
_kept: list[BaseException] = []


def main(arguments: Sequence[str]) -> int:
    """Do one request and return the exit status."""
    options = parse(arguments)
    if options.fork_server is not None:
        fork_server.serve(options.fork_server, options.lifeline, main, fork_server.prepare)
        return 0
    if options.ranks is not None:
        rank.take_part(options.ranks, _do)
    progress = Progress(options.progress)
    if options.lifeline is not None or options.parent:  # a fork server starts the guard of its probe itself
        harden(options.lifeline, options.parent)
    folder = options.folder.absolute()  # the target may change the working folder
    started, born = datetime.now(UTC).isoformat(timespec="seconds"), os.getpid()
    request = decode((folder / REQUEST).read_bytes())
    variables.set_ours(COMPILED, str(cache_of(request, folder)))
    if is_command(request.target or ""):  # the main thread runs the user's script
        hygiene.contain(folder)
    if of_ranks(request):
        become = partial(rank.take_part, do=_do)
        handler = partial(group.supervise, folder=folder, become=become)
        return _do(request, folder, progress, started, born, handler)
    give_threads_back()
    if is_command(request.target or ""):
        main_thread.lend(lambda: fork_server.leave(_do(request, folder, progress, started, born)))
    return _do(request, folder, progress, started, born)


def _do(
    request: Request[Any],
    folder: Path,
    progress: Progress,
    started: str,
    born: int,
    handler: RequestHandler | None = None,
) -> int:
    """Write the result into the request's folder; return the exit status. `handler` replaces the request's own."""
    sockets = _folder_of_sockets() if handler is None else ""  # another handler trains nothing
    result = _result(request, progress, started, handler)
    if os.getpid() != born:  # a process that the target forked also returns here, and must write no result
        os._exit(0)
    goes_on = is_command(request.target or "") and world_size() > 1  # its workers still pass tensors on: the launcher
    if sockets and not goes_on:  # takes the folder away once all ranks have ended
        _PROCESS.pop("tempdir")
        shutil.rmtree(sockets, ignore_errors=True)
    try:
        codec.write(folder / RESULT, result)
    except OSError as error:
        with suppress(Exception):  # the log lies on the same full disk, or the target closed it
            print(f"autotune: the result could not be written: {error}", file=sys.stderr, flush=True)
        return classify.EXIT_CANNOT_WRITE
    if result.failure is not None and result.outcome is Outcome.TIMEOUT:  # of silent ranks: the log has their stacks,
        print(
            result.failure.traceback, file=sys.stderr, flush=True
        )  # after the result, for the launcher waits no longer
    return 0


def _folder_of_sockets() -> str:
    """Make the folder in which loader workers pass tensors on, and return its path. Empty where nothing can be written.

    Otherwise each worker would make its own folder among the system's temporary files, and be ended before it removes
    it (CPython 3.11, `multiprocessing.util.get_temp_dir`, which would report at the exit that this one is gone). If a
    probe is killed, its launcher removes the folder, or its guard if the launcher was killed, too (`lifeline.py`).
    """
    try:
        _PROCESS["tempdir"] = new_socket_folder(os.environ.get(TAG, ""))
    except OSError:
        return ""
    return str(_PROCESS["tempdir"])


def _result(request: Request[Any], progress: Progress, started: str, handler: RequestHandler | None) -> Result:
    try:
        os.environ.update(hygiene.environ(request))
        os.environ.update(environ(request.process_config().values))  # the OpenMP runtime reads it once, with torch
        if handler is None:
            _import_torch()
            variables.note_threads()
            handler = _handler_of(request)
        result = handler(request, progress=progress)
        progress.phase("done")
    except BaseException as error:  # the only place that catches all: whatever happened is the result
        with suppress(Exception):  # the target may have closed the log
            traceback.print_exc()  # complete, with the frames of torch and autotune: the failure shows only the user's
        outcome, failure = _judge(error, request, progress.current)
        if outcome is Outcome.DEVICE_FAULT:
            _kept.append(error)
        result = request.failed(outcome, failure)
    seconds = {name: round(value, 3) for name, value in progress.seconds.items()}
    return replace(result, phase_seconds=seconds, started_at=started)


def _handler_of(request: Request[Any]) -> RequestHandler:
    """Return the function that does the request. Imported here: torch must be loaded before, and imports take time."""
    module, _, function = MEASUREMENTS[type(request)].partition(":")
    handler: RequestHandler = getattr(import_module(module), function)
    return handler


def _import_torch() -> None:
    """Load torch. Raises `EnvironmentUnfit` if that fails: a broken installation raises errors of any type."""
    try:
        with uncollected():
            import torch  # noqa: F401
        gc.freeze()  # torch stays: collecting it again while torch._dynamo is imported takes 0.2 s more per probe
    except Exception as error:
        raise EnvironmentUnfit(
            f"torch cannot be imported: {type(error).__name__}: {error}. Its installation is probably broken, or built "
            f"for another machine. Try `{sys.executable} -c 'import torch'`, and install it again."
        ) from error


def _judge(error: BaseException, request: Request[Any], phase: str) -> tuple[Outcome, Failure]:
    from autotune.targets.tracebacks import error_text, user_frames

    memory = sys.modules.get("autotune.child.memory")  # not loaded if torch could not be loaded
    share = memory.memory_share(device_of_rank(request.device or "cpu")) if memory else None
    frame, trace = user_frames(error, Path.cwd())
    message = error_text(error)
    if isinstance(error, EnvironmentUnfit):
        outcome, evidence, message = Outcome.ENVIRONMENT, "looked for before anything ran", str(error)
    elif isinstance(error, UnstableTraining):
        outcome, evidence, message = Outcome.UNSTABLE, "the gradient scaler", str(error)
    elif isinstance(error, SharedMemoryTooSmall):
        outcome, evidence, message = Outcome.OOM_SHM, "predicted from one sample, before a worker ran", str(error)
    else:
        outcome, evidence = classify.classify(classify.describe(error), memory_share=share)
        if isinstance(error, TargetError):
            message, trace = classify.words_of(error), error.traceback or (trace if frame else "")
        elif outcome is Outcome.USER_ERROR and frame:
            message = f"{frame}: {message}"
    if outcome is not Outcome.USER_ERROR:
        message = message.strip().splitlines()[0]
    sites = getattr(error, ALLOCATION_SITES, ()) if outcome.out_of_memory else ()
    return outcome, Failure(
        phase=phase, message=message, evidence=evidence, traceback=trace, user_frame=frame, sites=sites
    )


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of `python -m autotune.child`."""
    parser = argparse.ArgumentParser(prog="python -m autotune.child", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--fork-server", type=int, help="descriptor of requests: fork a process for each")
    parser.add_argument("--lifeline", type=int, help="descriptor that closes when the search ends")
    parser.add_argument("--progress", type=int, help="descriptor that phases and heartbeats are written to")
    parser.add_argument("--ranks", type=Path, help="folder of the ranks that this process is one of")
    parser.add_argument("--parent", type=int, default=0, help="process id of the search")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    fork_server.leave(main(sys.argv[1:]))
