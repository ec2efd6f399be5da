"""A dashboard that really serves, on a free port of this machine, and a client that hides nothing."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autotune.dashboard.server import StudyServer


@contextmanager
def serving(path: Path, host: str = "127.0.0.1", **options: Any) -> Iterator[StudyServer]:
    """The server of `path` at work."""
    server = StudyServer(path, host, port=0, **options)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def ask(
    server: StudyServer, path: str, method: str = "GET", host: str | None = None, **headers: str
) -> tuple[int, http.client.HTTPMessage, str]:
    """Status, headers and content of one answer; `headers` with underscores for their dashes."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", host or f"127.0.0.1:{server.port}")
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()
