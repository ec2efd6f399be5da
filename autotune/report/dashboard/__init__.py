"""A small read-only server of study pages that keep themselves up to date; `autotune dashboard` starts it.

hosts.py     where it listens and by which names it may be asked      answer.py   question and answer
handler.py   the protocol, its limits and headers                     frame.py    what is added to a page
site.py      which place shows what                                   live.js     keeps a page up to date
reading.py   studies by file times, never following a link            raw.py, copies.py   optuna-dashboard
"""

from __future__ import annotations

import errno
import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Sequence
from http.server import ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from autotune.errors import StudyNotFound, UsageError
from autotune.report.dashboard.handler import StudyHandler
from autotune.report.dashboard.hosts import Hosts, listening_address, own_names
from autotune.report.dashboard.site import Site

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 30.0  # for a request to arrive and for its answer to be taken
MOST_CONNECTIONS = 64  # at once; a browser has six


def serve(
    path: Path,
    host: str = "127.0.0.1",
    port: int = 8088,
    *,
    exposed: bool = False,
    names: Sequence[str] = (),
    on_ready: Callable[[str], None],
) -> None:
    """Serve the study in `path`, or all studies in it, until Ctrl-C; `on_ready` is told the address.

    An address beyond this machine has to be `exposed` knowingly; `names` are then further ones to answer to. Raises
    `UsageError` for such an address or a taken port, `StudyNotFound` for no such folder.
    """
    with make_server(path, host, port, exposed=exposed, names=names) as server:
        on_ready(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            logger.debug("stopped by Ctrl-C")


class StudyServer(ThreadingHTTPServer):
    """Knows what to serve and to whom; ends with its process, whatever its requests are doing."""

    request_queue_size = MOST_CONNECTIONS

    def __init__(self, site: Site, hosts: Hosts, address: tuple[str, int], patience_seconds: float) -> None:
        self.site, self.hosts, self.patience_seconds = site, hosts, patience_seconds
        self.address_family = socket.AF_INET6 if ip_address(address[0]).version == 6 else socket.AF_INET
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(address, StudyHandler)

    def server_bind(self) -> None:
        """Bind, without the look-up of a name that http.server adds: nothing here asks the network."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        host, port = self.server_address[:2]
        name = f"[{host!s}]" if self.address_family == socket.AF_INET6 else str(host)
        return f"http://{name}:{port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread, if there are not too many already."""
        if not self._free.acquire(blocking=False):
            logger.debug("more than %d connections: %s is turned away", MOST_CONNECTIONS, client_address)
            return self.shutdown_request(request)
        return super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no event."""
        logger.debug("request from %s failed", client_address, exc_info=True)


def make_server(
    path: Path,
    host: str = "127.0.0.1",
    port: int = 8088,
    *,
    exposed: bool = False,
    names: Sequence[str] = (),
    patience_seconds: float = PATIENCE_SECONDS,
) -> StudyServer:
    """The server, bound but not yet serving; port 0 takes any free one. Raises what `serve` raises."""
    if not path.is_dir():
        raise StudyNotFound(
            f"{path} is not a folder. A study folder, or a folder of studies, was probably meant. "
            f"Run `autotune search` first, or name another one."
        )
    address = listening_address(host, port, exposed=exposed)
    beyond = not address.is_loopback
    try:
        hosts = Hosts(exposed=beyond, names=own_names(names) if beyond else ())
        return StudyServer(Site(path), hosts, (str(address), port), patience_seconds)
    except (OSError, OverflowError) as error:
        why = "is taken" if getattr(error, "errno", None) == errno.EADDRINUSE else f"cannot be used ({error})"
        raise UsageError(
            f"Port {port} of {address} {why}. Another dashboard is probably running. "
            f"Open that one, or choose another port with --port {port + 1 if port < 65535 else 0}."
        ) from error
