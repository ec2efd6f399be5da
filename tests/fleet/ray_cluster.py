"""A Ray cluster of the tests' own: one node on this machine, with resources that are only said."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from tests.fleet.fleet import until

MARK = "AUTOTUNE_TEST_CLUSTER"  # environment variable of all its processes, those of probes among them
START_SECONDS = 180.0
# Another token or thread count of this machine's user is not the tests' business.
PLAIN = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class RayCluster:
    """One head node with one CPU and two GPUs, as it says."""

    def __init__(self) -> None:
        if find_spec("ray") is None or find_spec("grpc") is None:
            pytest.skip("ray is not installed, in CI neither (pip install 'ray[client]'): --on is NOT tested")
        # Sockets lie in it, and their paths may have 107 bytes: pytest's own folders are too deep.
        self.folder, self.mark = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp")), uuid.uuid4().hex
        port, self.client_port = free_port(), free_port()
        self.address, self.client_address = f"127.0.0.1:{port}", f"ray://127.0.0.1:{self.client_port}"
        environ = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        log = self.folder / "log"
        with log.open("w") as output:
            self.head = subprocess.Popen(
                [Path(sys.executable).parent / "ray", "start", "--head", "--block", f"--port={port}",
                 f"--ray-client-server-port={self.client_port}", "--include-dashboard=false", "--num-cpus=1",
                 "--num-gpus=2", f"--temp-dir={self.folder}", "--object-store-memory=80000000"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, cwd="/",
                env={**environ, **PLAIN, MARK: self.mark, "TMPDIR": str(self.folder)},
            )  # fmt: skip
        try:
            until(lambda: "Ray runtime started" in log.read_text() or self.head.poll() is not None, START_SECONDS)
            assert self.head.poll() is None, log.read_text()
        except BaseException:
            self.close()
            raise

    def processes(self, *words: str) -> list[psutil.Process]:
        """Those of the cluster, and of what runs on it, with one of the words in their command line."""
        found = []
        for one in psutil.process_iter():
            try:
                line = " ".join(one.cmdline())
                if one.status() != psutil.STATUS_ZOMBIE and any(word in line for word in words):
                    found += [one] if one.environ().get(MARK) == self.mark else []
            except psutil.Error:
                continue
        return found

    def actors(self) -> list[psutil.Process]:
        return self.processes("ray::RayWorker")

    def probes(self) -> list[psutil.Process]:
        return self.processes("autotune.child")

    def close(self) -> None:
        self.head.send_signal(signal.SIGTERM)  # ends its processes
        try:
            self.head.wait(30)
        except subprocess.TimeoutExpired:
            self.head.kill()
            self.head.wait()
        for one in self.processes(""):
            one.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
