"""Starts the workers of a search on a Ray cluster, and ends them with it. Imports no Ray.

the search ──order──► ray_driver ──► actors with a worker in each ──► the database
    ▲                     │
    └────────news─────────┘          the pipe of the order stays open: its end says that the search is gone
"""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec

import msgspec

from autotune.errors import EnvironmentUnfit, UsageError
from autotune.fleet.records import RayNews, RayOrder
from autotune.harmless import plain

ADDRESS = re.compile(r"auto|ray://[^\s/?#@]+|[^\s/?#@:]+:[0-9]+|\[[0-9a-fA-F:.]+\]:[0-9]+")
COMMAND = ("-P", "-c", "from autotune.fleet.ray_driver import main; main()")  # the actor's class is found by its import
PLACEMENT_SECONDS = 180.0  # to import Ray, connect and place the workers
CLOSED_SECONDS = 25.0  # to end them, a little more than `ray_driver` gives itself
# It runs in no folder of the user, and ships none to the nodes: `uv run` would have Ray do that.
ENVIRON = {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "PYTHONUNBUFFERED": "1"}


def check_cluster(address: str, device: str | None) -> None:
    """Raise `UsageError` where no cluster can be meant, or Ray is not there."""
    if not ADDRESS.fullmatch(address):
        raise UsageError(
            f"--on {address} is no address of a Ray cluster. It was probably mistyped. Write ray://HOST:10001, "
            f"HOST:6379, or auto for the cluster that this machine belongs to."
        )
    if device is not None and ":" in device:
        raise UsageError(
            f"--device {device} names one GPU of a machine, and with --on Ray chooses a GPU for each worker. It was "
            f"probably left over from a search on one machine. Write --device {device.partition(':')[0]}, or leave it "
            f"out."
        )
    if find_spec("ray") is None:
        raise UsageError(
            "--on needs the package ray, which is not installed. It is an extra of autotune. Run "
            "`pip install -e '.[ray,postgres]'` in autotune's clone, here and on every node of the cluster."
        )


class RayCluster:
    """The workers that Ray holds for one search; see `Starter`. Its connection is a process of its own."""

    def __init__(self, order: RayOrder, tell: Callable[[str], None]) -> None:
        """Place the workers. Raises `EnvironmentUnfit` where the cluster is not reached, or has no room."""
        self.how = f"Ray starts them on {order.address}"
        self.remedy = "Look at `ray status`"
        self.workers = 0
        self._address, self._tell = order.address, tell
        self._over: str | None = None
        self._first: queue.SimpleQueue[RayNews | None] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._process = subprocess.Popen(
            (sys.executable, *COMMAND), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            start_new_session=True, cwd="/", env={**os.environ, **ENVIRON},  # no Ctrl-C from our terminal
        )  # fmt: skip
        try:
            self._place(order)
        except BaseException:  # Ctrl-C, too
            self.close(has_ended=False)
            raise

    def check(self) -> None:
        """Raise `EnvironmentUnfit` if no worker will come any more."""
        if self._over is not None:
            raise EnvironmentUnfit(f"No worker is left on the Ray cluster {self._address}. {self._over}")

    def close(self, *, has_ended: bool) -> None:
        """End the workers; if the search `has_ended`, they leave by themselves before."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(b"ended" * has_ended)
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(CLOSED_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _place(self, order: RayOrder) -> None:
        assert self._process.stdin is not None
        threading.Thread(target=self._read, daemon=True).start()
        with suppress(OSError):  # it has ended, which the news tell
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")
            self._process.stdin.flush()
        try:
            first = self._first.get(timeout=PLACEMENT_SECONDS)
        except queue.Empty:
            raise self._silent(f"did not answer for {PLACEMENT_SECONDS:.0f} s") from None
        if first is None:
            raise self._silent("ended the process that was connected to it")
        if first.kind != "placed":
            raise EnvironmentUnfit(first.text)
        self.workers = first.workers

    def _read(self) -> None:
        """Read the news until their end, in a thread of its own."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                news = msgspec.json.decode(line, type=RayNews)
                match news.kind:
                    case "note":
                        self._tell(news.text)
                    case "placed":
                        self._first.put(news)
                    case "refused" | "over":  # the first by the first news, or when Ray fails later
                        self._over = news.text
                        self._first.put(news)
        if self._over is None:
            self._over = (
                f"The connection to it was lost{self._last_words()}. Its head node probably went down. Look at `ray "
                f"status`, and run the same command again."
            )
        self._first.put(None)

    def _silent(self, what: str) -> EnvironmentUnfit:
        return EnvironmentUnfit(
            f"The Ray cluster {self._address} {what}{self._last_words()}. It is probably overloaded, or of another "
            f"version than the Ray that is installed here. Look at `ray status`, or correct --on."
        )

    def _last_words(self) -> str:
        """Return the last line that Ray wrote, behind a colon; empty if it wrote none."""
        with suppress(OSError, ValueError):
            lines = os.pread(self._errors.fileno(), 4096, max(0, os.fstat(self._errors.fileno()).st_size - 4096))
            words = [plain(line) for line in lines.decode(errors="replace").splitlines() if line.strip()]
            return f": {words[-1].rstrip('.')}" if words else ""
        return ""
