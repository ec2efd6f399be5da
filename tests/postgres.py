"""A PostgreSQL server of the tests' own: a cluster in a temporary folder, on a free port of 127.0.0.1."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from pathlib import Path

import psycopg
import pytest

USER = "autotune"
SETTINGS = "fsync = off\nunix_socket_directories = ''\nmax_connections = 200\n"


def programs() -> Path | None:
    """The folder of the server's programs; None where none is installed."""
    known = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    found = shutil.which("initdb") or (known[-1] if known else None)
    return Path(found).parent if found else None


class Server:
    """One cluster, which a test may stop, start and freeze. PostgreSQL refuses to run as root, and so is given away."""

    def __init__(self, *, addresses: str = "127.0.0.1", trusted: str = "") -> None:
        """`addresses`: where it listens; `trusted`: a network besides this machine, from which it asks no password."""
        found = programs()
        if found is None:
            pytest.skip("no PostgreSQL server is installed (Debian: apt install postgresql): the fleet is NOT tested")
        if os.getuid() == 0 and not self._has_user():
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres: the fleet is NOT tested")
        self._programs, self.folder = found, Path(tempfile.mkdtemp(prefix="autotune-postgres-"))
        if os.getuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", USER, "--no-sync")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        with (self._data / "postgresql.conf").open("a") as settings:
            settings.write(f"port = {self.port}\nlisten_addresses = '{addresses}'\n{SETTINGS}")
        if trusted:
            with (self._data / "pg_hba.conf").open("a") as trusts:
                trusts.write(f"host all all {trusted} trust\n")
        self.start()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @staticmethod
    def _has_user() -> bool:
        return any(one.pw_name == "postgres" for one in pwd.getpwall())

    def _run(self, program: str, *words: str) -> None:
        as_user = ("runuser", "-u", "postgres", "--") if os.getuid() == 0 else ()
        done = subprocess.run(
            [*as_user, str(self._programs / program), *words], capture_output=True, text=True, cwd="/", check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        log = str(self.folder / "log")
        # Files, not pipes: the server keeps what it was given, and whoever waits for the end of a pipe waits for it.
        self._run("pg_ctl", "-D", str(self._data), "-w", "-s", "-l", log, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "-s", "-m", "fast", "stop")

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def pids(self) -> list[int]:
        """The server and its processes, the server first."""
        import psutil

        leader = psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))
        return [leader.pid, *(child.pid for child in leader.children(recursive=True))]

    def freeze(self) -> list[int]:
        """Stop all its processes where they stand, as a network that swallows everything would have it."""
        frozen = self.pids
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        return frozen

    def thaw(self, frozen: list[int]) -> None:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)

    def url(self, name: str = "postgres", *, port: int | None = None) -> str:
        return f"postgresql://{USER}:a-secret@127.0.0.1:{port or self.port}/{name}"

    def new_database(self) -> str:
        """The address of a database of its own."""
        name = f"fleet_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
        return self.url(name)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)
