"""A worker's machine vanishes while it measures: when its lease is free, and when another one begins its probe.

    sudo python -m benchmarks.fleet_vanishes

The machine is a network namespace, and its cable is taken off: no packet says that it has gone, so that only the
timeouts of TCP tell, on both ends. All durations are those of a real fleet. Needs root, `ip`, and PostgreSQL.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from autotune.core.requests import ProbeRequest
from autotune.fleet.records import Timing
from autotune.fleet.schema import WORKER_LOCK
from autotune.testing.launcher_contract import example
from tests.fleet.fleet import Fleet, until
from tests.postgres import Server

HERE, FAR = "10.77.0.1", "10.77.0.2"  # ends of the cable
MOST_SECONDS = 400.0


@contextmanager
def far_machine() -> Iterator[tuple[str, ...]]:
    """Make the machine; yield the words that a command on it begins with."""
    _ip("netns add far")
    try:
        _ip("link add cable type veth peer name eth0 netns far")
        _ip(f"addr add {HERE}/24 dev cable")
        _ip("link set cable up")
        _ip(f"-n far addr add {FAR}/24 dev eth0")
        _ip("-n far link set eth0 up")
        yield ("ip", "netns", "exec", "far")
    finally:
        _ip("netns del far")


def main() -> None:
    """Run it, and print the moments since the cable was taken off."""
    request, timing = example(ProbeRequest, "long"), Timing()
    with tempfile.TemporaryDirectory() as place, far_machine() as far:
        server = Server(addresses="*", trusted=f"{HERE}/24")
        with Fleet(server, Path(place) / "fleet") as fleet, psycopg.connect(fleet.url, autocommit=True) as looking:
            launcher, results = fleet.launcher(timing=timing), []
            fleet.worker("far", timing=timing, url=fleet.url.replace("127.0.0.1", HERE), within=far)
            folder = fleet.place(0)
            running = threading.Thread(target=lambda: results.append(launcher.run(request, folder)))
            running.start()
            until(lambda: fleet.began("far"))
            fleet.worker("near", timing=timing)
            _ip("link set cable down")
            gone = time.monotonic()
            held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = %s"
            until(lambda: looking.execute(held, (WORKER_LOCK,)).fetchone() == (2,))  # the other one has joined
            until(lambda: looking.execute(held, (WORKER_LOCK,)).fetchone() == (1,), MOST_SECONDS)
            print(f"its lease is free after {time.monotonic() - gone:.0f} s", flush=True)
            until(lambda: fleet.began("near"), MOST_SECONDS)
            print(f"another one begins its probe after {time.monotonic() - gone:.0f} s", flush=True)
            running.join(MOST_SECONDS)
            print(f"the result is of {results[0].worker!r}, {results[0].outcome}", flush=True)
            _ip("link set cable up")
            until(lambda: "not used" in fleet.log("far").read_text() or "stopped" in fleet.log("far").read_text())
            print("\n".join(f"far: {line}" for line in fleet.log("far").read_text().splitlines()))
        server.close()


def _ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()
