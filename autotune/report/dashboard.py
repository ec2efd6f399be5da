"""A small read-only server of study pages, for this machine only; every request reads the study anew."""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import re
import secrets
import socket
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from autotune import folder as disk
from autotune.errors import AutotuneError, StudyNotFound, UsageError
from autotune.report.page import render, render_index
from autotune.tuning.view import load_view

logger = logging.getLogger(__name__)

MOST_LOG_BYTES = 256 * 1024  # the end of a log holds the error; a browser should not have to swallow the rest
LOG = re.compile(r"probes/([0-9]{4,9})/log\.txt")
HTML, TEXT = "text/html; charset=utf-8", "text/plain; charset=utf-8"


def serve(path: Path, host: str = "127.0.0.1", port: int = 8088, *, on_ready: Callable[[str], None]) -> None:
    """Serve the study in `path`, or all studies in it, until Ctrl-C; `on_ready` is told the address.

    Raises `UsageError` for an address beyond this machine or a taken port, `StudyNotFound` for no such folder.
    """
    with make_server(path, host, port) as server:
        on_ready(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            logger.debug("stopped by Ctrl-C")


class StudyServer(ThreadingHTTPServer):
    """Knows what to serve; ends with its process, whatever its requests are doing."""

    def __init__(self, path: Path, host: str, port: int, family: socket.AddressFamily) -> None:
        self.address_family = family
        self.path = path
        self.is_single_study = disk.is_study(path)
        super().__init__((host, port), StudyHandler)

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        host, port = self.server_address[:2]
        name = f"[{host!s}]" if self.address_family == socket.AF_INET6 else str(host)
        return f"http://{name}:{port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no event."""
        logger.debug("request from %s failed", client_address, exc_info=True)


def make_server(path: Path, host: str = "127.0.0.1", port: int = 8088) -> StudyServer:
    """The server, bound but not yet serving; port 0 takes any free one. Raises what `serve` raises."""
    if not path.is_dir():
        raise StudyNotFound(
            f"{path} is not a folder. A study folder, or a folder of studies, was probably meant. "
            f"Run `autotune search` first, or name another one."
        )
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        address = None
    if address is None or not address.is_loopback:
        raise UsageError(
            f"The dashboard would listen on {host}, which others can reach. It shows source paths and logs to whoever "
            f"asks. Use --host 127.0.0.1, and from another machine `ssh -L {port}:127.0.0.1:{port} THIS-MACHINE`."
        )
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        return StudyServer(path, str(address), port, family)
    except (OSError, OverflowError) as error:
        why = "is taken" if getattr(error, "errno", None) == errno.EADDRINUSE else f"cannot be used ({error})"
        raise UsageError(
            f"Port {port} of {address} {why}. Another dashboard is probably running. "
            f"Open that one, or choose another port with --port {port + 1 if port < 65535 else 0}."
        ) from error


class StudyHandler(BaseHTTPRequestHandler):
    """Answers GET and HEAD: `/` or `/NAME/` with a page, `.../probes/0007/log.txt` with the end of a log."""

    server: StudyServer
    server_version, sys_version = "autotune", ""
    timeout = 30  # seconds for a request to arrive

    def setup(self) -> None:
        """One nonce for each answer, so that only our own style is applied."""
        self.nonce = secrets.token_urlsafe(16)
        super().setup()

    def do_GET(self) -> None:
        """Answer with page, list or log."""
        if not _names_this_machine(self.headers.get("Host", "")):
            # Another name resolving to 127.0.0.1 is how a foreign web page would read us (DNS rebinding).
            return self._answer(HTTPStatus.MISDIRECTED_REQUEST, TEXT, "This server answers to localhost only.\n")
        place = unquote(urlsplit(self.path).path).removeprefix("/")
        try:
            return self._route(place)
        except StudyNotFound as error:
            return self._answer(HTTPStatus.NOT_FOUND, TEXT, f"{error}\n")
        except (AutotuneError, OSError) as error:
            return self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, TEXT, f"{error}\n")

    do_HEAD = do_GET  # noqa: N815 - the same without a body

    def _refuse(self) -> None:
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, TEXT, "Read only.\n")

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815

    def _route(self, place: str) -> None:
        root = self.server.path
        if self.server.is_single_study:
            return self._study(root, place)
        known = {folder.name: folder for folder in disk.studies(root) if _is_inside(folder, root)}
        if not place:
            return self._answer(HTTPStatus.OK, HTML, render_index(list(known.values()), nonce=self.nonce))
        name, slash, rest = place.partition("/")
        if name not in known:
            return self._missing()
        if not slash:
            return self._answer(HTTPStatus.PERMANENT_REDIRECT, TEXT, "", {"Location": f"/{quote(name)}/"})
        return self._study(known[name], rest)

    def _study(self, folder: Path, place: str) -> None:
        if not place:
            return self._answer(HTTPStatus.OK, HTML, render(load_view(folder), served=True, nonce=self.nonce))
        match = LOG.fullmatch(place)
        log = disk.log_of(folder, int(match[1])) if match else None
        if log is None or not log.is_file() or not _is_inside(log, folder):
            return self._missing()
        return self._answer(HTTPStatus.OK, TEXT, _end_of(log))

    def _missing(self) -> None:
        self._answer(HTTPStatus.NOT_FOUND, TEXT, "There is no such page.\n")

    def _answer(self, status: HTTPStatus, kind: str, text: str, headers: dict[str, str] | None = None) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def end_headers(self) -> None:
        """Every answer, errors of http.server included, forbids scripts, frames, guessing and keeping."""
        policy = f"default-src 'none'; style-src 'nonce-{self.nonce}'; base-uri 'none'; form-action 'none'"
        self.send_header("Content-Security-Policy", f"{policy}; frame-ancestors 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        if self.command not in ("GET", "HEAD"):
            self.send_header("Allow", "GET, HEAD")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Requests go to the log, not to the terminal."""
        logger.debug(format, *args)


def _names_this_machine(host: str) -> bool:
    """Whether a Host header names a loopback address; any port, since a tunnel may lead here from another one."""
    name = re.sub(r":[0-9]+$", "", host).strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_inside(path: Path, folder: Path) -> bool:
    """Whether `path`, links followed, lies in `folder`."""
    return path.resolve().is_relative_to(folder.resolve())


def _end_of(log: Path) -> str:
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - MOST_LOG_BYTES))
        text = file.read(MOST_LOG_BYTES).decode("utf-8", "replace")
    cut = size - MOST_LOG_BYTES
    return text if cut <= 0 else f"[the first {cut} bytes are left out]\n{text}"
