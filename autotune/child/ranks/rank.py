"""One rank of a probe. It measures like a probe of one process, and ends when all ranks are done."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from autotune.child import fork_server
from autotune.child.library_threads import give_threads_back
from autotune.child.lifeline import Progress, harden
from autotune.child.ranks.group import END, PROGRESS, STACKS
from autotune.core.measurements import decode
from autotune.launch.base import REQUEST
from autotune.targets.commands.command import is_command
from autotune.targets.commands.distributed import world_size
from autotune.targets.commands.watching import main_thread
from autotune.targets.ranks.world import RANKS_FOLDER_VARIABLE


def take_part(folder: Path, do: Callable[..., Any]) -> NoReturn:
    """Answer the request in this rank's part of `folder` by calling `do`; a command's script has the main thread."""
    os.environ.pop("PYTHONSAFEPATH", None)  # meant for this interpreter, not for processes of the script
    # A distributed launcher ends its ranks itself.
    parent = os.getppid() if RANKS_FOLDER_VARIABLE in os.environ else None
    harden(None, parent)
    own = folder / os.environ.get("RANK", "0")
    if not own.is_dir():  # more ranks were started than the command says; the expected ranks report it
        threading.Event().wait()
    # Each rank writes its stacks to a file of its own: in the log those of several ranks would be mixed.
    faulthandler.register(signal.SIGUSR1, (own / STACKS).open("w"), all_threads=True)
    pipe = os.open(own / PROGRESS, os.O_WRONLY | os.O_NONBLOCK)
    os.write(pipe, f"rank {os.getpid()} {world_size()}\n".encode())
    progress = Progress(pipe)
    started, request = datetime.now(UTC).isoformat(timespec="seconds"), decode((own / REQUEST).read_bytes())

    def work() -> None:
        status = do(request, own, progress, started, os.getpid())
        os.write(pipe, b"left\n")  # the result is there: the supervisor need not wait for its next look
        if world_size() > 1:  # it stays until all ranks have measured: without this one the others would fail
            (own / END).mkdir()
            do(request, own / END, progress, started, os.getpid(), _await_end)
            threading.Event().wait()
        fork_server.leave(status)

    if is_command(request.target or ""):
        main_thread.lend(work)
    give_threads_back()
    work()
    raise AssertionError("work() must end the process, but it returned")


def _await_end(request: object, progress: Progress) -> NoReturn:
    """Raise why the program ended, where others may still wait for its steps; otherwise never return."""
    main_thread.await_end()
