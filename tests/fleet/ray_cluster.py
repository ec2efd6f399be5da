"""A Ray cluster of the tests' own: nodes on this machine, with resources that are only said."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from tests.fleet.fleet import until

# Environment variables of all its processes, those of probes among them: the cluster, and a node that was added.
MARK, NODE_MARK = "AUTOTUNE_TEST_CLUSTER", "AUTOTUNE_TEST_NODE"
START_SECONDS = 180.0
# Another token or thread count of this machine's user is not the tests' business.
PLAIN = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class RayCluster:
    """One head node with one CPU and two GPUs, as it says; others may be added."""

    def __init__(self) -> None:
        if find_spec("ray") is None or find_spec("grpc") is None:
            pytest.skip("ray is not installed, in CI neither (pip install 'ray[client]'): --on is NOT tested")
        # Sockets lie in it, and their paths may have 107 bytes: pytest's own folders are too deep.
        self.folder, self.mark = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp")), uuid.uuid4().hex
        port, self.client_port = free_port(), free_port()
        self.address, self.client_address = f"127.0.0.1:{port}", f"ray://127.0.0.1:{self.client_port}"
        self.nodes: list[subprocess.Popen] = []
        try:
            self.head = self._start(
                "head", "--head", f"--port={port}", f"--ray-client-server-port={self.client_port}",
                "--include-dashboard=false", "--num-gpus=2", f"--temp-dir={self.folder}",
            )  # fmt: skip
        except BaseException:
            self.close()
            raise

    def add(self, name: str) -> None:
        """Add a node with one CPU whose host is called so, as another machine would be: a namespace has the name."""
        as_root = () if os.getuid() == 0 else ("--map-root-user",)
        named = ("unshare", *as_root, "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name)
        if subprocess.run([*named, "true"], capture_output=True, check=False).returncode:
            pytest.skip("no namespace may be made here for the name of a host: two nodes of Ray are NOT tested")
        self._start(name, f"--address={self.address}", "--num-gpus=0", within=named)

    def _start(self, name: str, *words: str, within: Sequence[str] = ()) -> subprocess.Popen:
        environ = {one: value for one, value in os.environ.items() if one != "OMP_NUM_THREADS"}
        log = self.folder / f"{name}.log"
        with log.open("w") as output:
            node = subprocess.Popen(
                [*within, Path(sys.executable).parent / "ray", "start", "--block", "--num-cpus=1",
                 "--object-store-memory=80000000", *words],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, cwd="/",
                env={**environ, **PLAIN, MARK: self.mark, NODE_MARK: name, "TMPDIR": str(self.folder)},
            )  # fmt: skip
        self.nodes.append(node)
        until(lambda: "Ray runtime started" in log.read_text() or node.poll() is not None, START_SECONDS)
        assert node.poll() is None, log.read_text()
        return node

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

    def kill(self, name: str) -> None:
        """Kill the node that was added under this name with all that runs on it, as if its power were cut."""
        for one in self.processes(""):
            with suppress(psutil.Error):
                if one.environ().get(NODE_MARK) == name:
                    one.kill()

    def close(self) -> None:
        for node in reversed(self.nodes):  # the head last
            node.send_signal(signal.SIGTERM)  # ends its processes
            try:
                node.wait(30)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
        for one in self.processes(""):
            one.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
