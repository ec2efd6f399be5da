"""The process that holds the connection of a search to a Ray cluster, and the actors in which workers run.

    order ─► connect ─► reserve resources ─► an actor with a worker in each ─► wait until the search is gone

A process of its own, for Ray takes over the one that it is in: it ends it when it loses its head node, handles
SIGTERM, and prints. When the pipe from the search closes, this process disconnects, and Ray ends the actors; the guard
of each probe ends what they ran. Only this file imports Ray.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from autotune.errors import AutotuneError, StudyError
from autotune.fleet.ray_placement import WorkerResources, worker_resources
from autotune.fleet.records import RayNews, RayOrder
from autotune.harmless import cropped, plain
from autotune.units import counted

CLIENT_PORT = 10001  # of a head node, where the address names none
REACH_SECONDS = 10.0  # to open a connection to the head node: Ray itself goes on trying for half a minute
FREE_SECONDS = 15.0  # for resources that are in use: those of a search that has just ended come back within a second
RESERVATION_SECONDS = 5.0  # for Ray to reserve what is free
SEARCH_LOOK_SECONDS = 0.5  # between two looks at whether the search is gone
WORKERS_LEAVE_SECONDS = 8.0  # for workers to leave by themselves when the search has ended: they look every two
DISCONNECT_SECONDS = 10.0  # for Ray to disconnect, until this process ends without it
MOST_RESTARTS = 10  # of each actor, whose process or node was lost: one that dies at once shall not do so for ever
SET_BY_RAY = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT")  # in the process of an actor, unless they are set there
COLOUR, CAUSE = re.compile(r"\x1b\[[0-9;]*m"), re.compile(r"[\w.]+(Error|Exception): .")

Say = Callable[[RayNews], None]


class ClusterUnfit(Exception):
    """The cluster cannot serve the search: an error of three sentences."""


class RayWorker:
    """A worker in the process of an actor. Ray runs an actor's method in the main thread, as `Worker` needs it."""

    def serve(self, order: RayOrder) -> str:
        """Measure for the search until it ends; return why this worker could not, empty if it could."""
        from autotune.fleet.worker import Worker

        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        name = "/gpu".join((os.uname().nodename, *map(str, gpus)))
        device = order.device or ("cuda" if gpus else None)  # a GPU that torch does not see is an error, not the CPU
        try:
            _settle(order)
            Worker(order.storage, order.study, name=name, target=order.target, device=device, tell=print).serve()
        except AutotuneError as error:
            return f"The worker {name} ended. {error}"
        return ""


def main() -> None:
    """Read the order from standard input, and serve the search until that is closed; news go to standard output."""
    with os.fdopen(os.dup(1), "wb", buffering=0) as news:
        os.dup2(2, 1)  # what Ray prints is no news
        order = msgspec.json.decode(sys.stdin.buffer.readline(), type=RayOrder)
        search = Search()
        try:
            _serve(order, search, lambda one: _write(news, one))
        except ClusterUnfit as error:
            _write(news, RayNews(kind="refused", text=str(error)))
        except Exception as error:  # of any kind, from Ray: over ray:// also what failed on the head node
            text = (
                f"The Ray cluster {order.address} does not run workers: {_cause(error)}. autotune is probably not "
                f"installed on its nodes, or the head node went down. Look at `ray status` and the logs of Ray there."
            )
            _write(news, RayNews(kind="refused", text=text))
        finally:
            ray.shutdown()


class Search:
    """The search at the other end of standard input, which closes when it ends or is killed."""

    def __init__(self) -> None:
        """Watch it from now on."""
        self.is_gone, self.has_ended, self.is_served = threading.Event(), False, False
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        self.has_ended = bool(sys.stdin.buffer.read())  # a word before the end says that it ended by itself
        if not self.is_served:
            os._exit(1)  # Ray may try to connect for minutes, and heed nothing meanwhile
        self.is_gone.set()
        time.sleep(WORKERS_LEAVE_SECONDS + DISCONNECT_SECONDS)
        os._exit(1)  # Ray waits for a cluster that is gone


def _serve(order: RayOrder, search: Search, say: Say) -> None:
    _connect(order.address)
    search.is_served = True
    runs = _start(order, say)
    last = ""
    while runs and not search.is_gone.is_set():
        for one in ray.wait([*runs], timeout=SEARCH_LOOK_SECONDS)[0]:
            runs.remove(one)
            why = _end_of(one)
            last = why or last
            if why and runs:  # the last one is told below
                say(RayNews(kind="note", text=why))
    if not search.is_gone.is_set():
        say(RayNews(kind="over", text=last))
        search.is_gone.wait()
    if runs and search.has_ended:
        ray.wait(runs, num_returns=len(runs), timeout=WORKERS_LEAVE_SECONDS)


def _connect(address: str) -> None:
    known: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    try:
        host, port = _head_node(address)
        if host:
            socket.create_connection((host, port), REACH_SECONDS).close()
        ray.init(address=address, **known)
    except (OSError, RuntimeError, ValueError, RayError) as error:
        raise ClusterUnfit(
            f"The Ray cluster {address} could not be reached: {_cause(error)}. Ray probably does not run there, "
            f"has another version, or another Python, or asks for a token (RAY_AUTH_MODE=token). Start it with `ray "
            f"start --head`, or correct --on."
        ) from None


def _head_node(address: str) -> tuple[str, int]:
    """Return host and port of the head node; no host where Ray itself looks for it."""
    found = re.fullmatch(r"(ray://)?\[?(?P<host>[^/]+?)\]?(:(?P<port>[0-9]+))?", address)
    if found is None or address == "auto":
        return "", 0
    return found["host"], int(found["port"] or CLIENT_PORT)


def _start(order: RayOrder, say: Say) -> list[Any]:
    """Start a worker in each place that the cluster has for the search; return what waits for their ends."""
    each = worker_resources([one["Resources"] for one in ray.nodes() if one["Alive"]], order.device, order.gpus)
    if not each.room:
        what = counted(each.gpus, "GPU") if each.gpus else "CPUs"
        raise ClusterUnfit(
            f"No node of the Ray cluster {order.address} has {what}. Ray was probably started there with other "
            f"resources than the search measures (--device {order.device or 'was not given'}). Give nodes more "
            f"(`ray start --num-cpus`, `--num-gpus`), or choose another --device."
        )
    group, count = _reserve(each, min(order.workers, each.room), order.address)
    if count < order.workers:
        text = (
            f"{order.address} has room for {count} of {order.workers} workers, each with {each}: going on with {count}."
        )
        say(RayNews(kind="note", text=text))
    actor = ray.remote(RayWorker)
    places = (PlacementGroupSchedulingStrategy(group, index) for index in range(count))
    runs = [
        actor.options(
            num_cpus=each.cpus, num_gpus=each.gpus, scheduling_strategy=place,
            max_restarts=MOST_RESTARTS, max_task_retries=MOST_RESTARTS,
        ).remote().serve.remote(order)
        for place in places
    ]  # fmt: skip
    say(RayNews(kind="placed", workers=count))
    return runs


def _reserve(each: WorkerResources, wanted: int, address: str) -> tuple[Any, int]:
    """Reserve the resources of as many workers as are wanted, or else of as many as there is room for now."""
    began = time.monotonic()
    while (free := each.free(ray.available_resources())) < wanted and time.monotonic() - began < FREE_SECONDS:
        time.sleep(SEARCH_LOOK_SECONDS)
    for count in range(min(free, wanted), 0, -1):  # what is free may lie on too few nodes
        group = placement_group([each.bundle] * count, strategy=each.strategy)
        if group.wait(RESERVATION_SECONDS):
            return group, count
        remove_placement_group(group)
    raise ClusterUnfit(
        f"No node of the Ray cluster {address} has {each} free, which a worker needs. Another job probably uses them "
        f"(`ray status` shows it). Wait for its end, and run the same command again."
    )


def _end_of(run: Any) -> str:
    try:
        return str(ray.get(run))
    except RayError as error:
        return (
            f"A worker of the Ray cluster ended: {_cause(error)}. autotune is probably not installed on its node, "
            f"or its process was killed more than {counted(MOST_RESTARTS, 'time')}. Look into the logs of Ray there."
        )


def _settle(order: RayOrder) -> None:
    """Make this process one in which a person would have started a worker: its folder, threads and priority."""
    with suppress(OSError):
        begun_with = Path("/proc/self/environ").read_bytes().split(b"\0")
        for name in SET_BY_RAY:  # OMP_NUM_THREADS: to the CPUs that it reserved, by which training need not go
            if not any(one.startswith(f"{name}=".encode()) for one in begun_with):
                os.environ.pop(name, None)
    with suppress(OSError):  # Ray runs actors with a niceness of 15; only root may take it back
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, os.getppid()))
    if ray.get_runtime_context().runtime_env.get("working_dir"):
        return  # Ray has brought the code, and started this process there
    try:
        os.chdir(order.folder)
    except OSError as error:
        raise StudyError(
            f"The folder {order.folder}, in which the search runs, is not there: {error.strerror}. The nodes "
            f"probably share no file system. Put the code there on each node, or let Ray bring it (docs/scaling.md)."
        ) from error


def _cause(error: Exception) -> str:
    """Return the error at the end of a traceback that Ray brought from elsewhere, or else the first line."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    lines = [plain(COLOUR.sub("", line)) for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if CAUSE.match(line)]
    return cropped((causes[-1:] or lines[:1] or [type(error).__name__])[0], 300).rstrip(".:")


def _write(news: Any, one: RayNews) -> None:
    with suppress(OSError):  # the search is gone, which its pipe tells, too
        news.write(msgspec.json.encode(one) + b"\n")
