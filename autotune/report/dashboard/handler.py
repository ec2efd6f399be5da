"""HTTP around the site: who may ask, how, for how long, and the headers that every answer carries."""

from __future__ import annotations

import io
import logging
import socket
import time
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from autotune.errors import AutotuneError, StudyNotFound
from autotune.report.dashboard.answer import Answer, Question, plain_text

if TYPE_CHECKING:
    from autotune.report.dashboard import StudyServer

logger = logging.getLogger(__name__)

MOST_QUERY_FIELDS = 8


class StudyHandler(BaseHTTPRequestHandler):
    """One request on one connection, which ends with its answer."""

    server: StudyServer
    server_version, sys_version = "autotune", ""
    default_request_version = "HTTP/1.0"  # what cannot be understood gets headers, too, unlike in HTTP/0.9
    _answer = plain_text("", HTTPStatus.BAD_REQUEST)  # until one is found: http.server's own errors have its policy

    def setup(self) -> None:
        """The whole request has to arrive within a time, not only its next byte."""
        super().setup()
        self.connection.settimeout(self.server.patience_seconds)  # for sending, which counts it over the whole answer
        self.rfile = io.BufferedReader(_Hurried(self.connection, self.server.patience_seconds))

    def do_GET(self) -> None:
        """Answer with what the site has at this place."""
        if not self.server.hosts.known(self.headers.get_all("Host", []), self.connection.getsockname()[0]):
            # Another name resolving to this machine is how a foreign web page would read us (DNS rebinding).
            return self._send(
                plain_text("This server answers to its own names only.\n", HTTPStatus.MISDIRECTED_REQUEST)
            )
        try:
            question = _question(self.path, self.headers)
        except ValueError as error:
            return self._send(plain_text(f"{error}\n", HTTPStatus.BAD_REQUEST))
        try:
            return self._send(self.server.site.answer(question))
        except StudyNotFound as error:
            return self._send(plain_text(f"{error}\n", HTTPStatus.NOT_FOUND))
        except (ConnectionError, TimeoutError):
            raise  # the browser went away, or does not take its answer
        except (AutotuneError, OSError) as error:
            return self._send(plain_text(f"{error}\n", HTTPStatus.INTERNAL_SERVER_ERROR))
        except Exception as error:  # an answer that says so is of more use than a connection that is closed
            logger.exception("no answer to %s", self.path)
            text = f"autotune itself failed: {type(error).__name__}: {error}. Please report it.\n"
            return self._send(plain_text(text, HTTPStatus.INTERNAL_SERVER_ERROR))

    do_HEAD = do_GET  # noqa: N815 - the same without a body

    def _refuse(self) -> None:
        self._send(plain_text("Read only.\n", HTTPStatus.METHOD_NOT_ALLOWED))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815

    def _send(self, answer: Answer) -> None:
        self._answer = answer
        self.send_response(answer.status)
        size = {} if answer.status == HTTPStatus.NOT_MODIFIED else {"Content-Length": str(len(answer.body))}
        for name, value in {"Content-Type": answer.kind, **size, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def end_headers(self) -> None:
        """Every answer, errors of http.server included, forbids foreign content, frames, guessing and keeping."""
        self.send_header("Content-Security-Policy", self._answer.policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")
        if self.command not in ("GET", "HEAD"):
            self.send_header("Allow", "GET, HEAD")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Requests go to the log, not to the terminal."""
        logger.debug(format, *args)


class _Hurried(io.RawIOBase):
    """The bytes of a socket, until the time for all of them together is over."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._seconds, self._ends = connection, seconds, time.monotonic() + seconds

    def readable(self) -> bool:
        """It is there to be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """As a socket does. Raises `TimeoutError` when the time is over."""
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long to arrive")
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(self._seconds)


def _question(path: str, headers: Message) -> Question:
    """Raises `ValueError` for a query with too many fields."""
    parts = urlsplit(path)
    return Question(
        place=unquote(parts.path).removeprefix("/"),
        query=dict(parse_qsl(parts.query, max_num_fields=MOST_QUERY_FIELDS)),
        raw_query=parts.query,
        known=headers.get("If-None-Match", ""),
        accepted_encoding=headers.get("Accept-Encoding", ""),
    )
