"""optuna-dashboard behind our server, where it is installed: read-only, on a copy in memory, with our headers.

Faults of it that this keeps out (optuna-dashboard 0.21): every route that deletes or edits is open to anyone, any Host
is accepted, and a request without Accept-Encoding is answered with status 500.
"""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.report.dashboard.answer import NOTHING, Answer, Question
from autotune.report.dashboard.frame import RawLink

if TYPE_CHECKING:
    from autotune.report.dashboard.copies import Copies

logger = logging.getLogger(__name__)

PLACES = ("dashboard", "api", "static", "csv", "favicon.ico")  # of its routes those that read
PASSED_ON = ("Content-Type", "Content-Encoding", "Content-Disposition", "Last-Modified")
FRAMED = "; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"  # its own policy leaves these open
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class RawTrials:
    """Loads optuna-dashboard and Optuna when somebody first asks for them, and copies databases when they changed."""

    def __init__(self) -> None:
        self.installed = find_spec("optuna_dashboard") is not None
        self._lock = threading.Lock()
        self._copies: Copies | None = None
        self._application: Application | None = None

    def link(self, place: str) -> RawLink:
        """What a page says about raw trials: `place` is where ours leads to them."""
        return RawLink(address=place if self.installed else None)

    def number(self, folder: Path, folders: Sequence[Path]) -> int | None:
        """Under which number optuna-dashboard knows the study; None where it is not installed."""
        if not self.installed:
            return None
        self._current(folders)
        return self._copies.number(folder) if self._copies else None

    def answer(self, question: Question, folders: Sequence[Path]) -> Answer | None:
        """What optuna-dashboard answers; None if the place is none of its own, or it is not installed."""
        if not self.installed or question.place.split("/")[0] not in PLACES:
            return None
        return _asked(self._current(folders), question)

    def _current(self, folders: Sequence[Path]) -> Application:
        # Optuna and optuna-dashboard take half a second to import: only who asks for raw trials waits for that.
        import optuna_dashboard

        from autotune.report.dashboard.copies import Copies

        with self._lock:
            self._copies = self._copies or Copies()
            if self._copies.update(folders) or self._application is None:
                self._application = optuna_dashboard.wsgi(self._copies.store())
            return self._application


def _asked(application: Application, question: Question) -> Answer:
    told: list[Any] = []

    def start(status: str, headers: list[tuple[str, str]], _error: object = None) -> None:
        told[:] = [status, headers]

    environ = _environ(question)
    chunks = application(environ, start)
    try:
        body = b"".join(chunks)
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()
    if complaint := environ["wsgi.errors"].getvalue():
        logger.debug("optuna-dashboard: %s", complaint)
    status, headers = HTTPStatus(int(told[0].split()[0])), dict(told[1])
    policy = headers.get("Content-Security-Policy")
    return Answer(
        status=status,
        kind=headers.get("Content-Type", "application/octet-stream"),
        body=body,
        policy=policy + FRAMED if policy else NOTHING,
        headers={name: value for name, value in headers.items() if name in PASSED_ON and name != "Content-Type"},
    )


def _environ(question: Question) -> dict[str, Any]:
    """The request as WSGI has it (PEP 3333), always one that reads, without a body and without cookies."""
    return {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": f"/{question.place}".encode().decode("latin-1"),
        "QUERY_STRING": question.raw_query,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.0",
        "HTTP_ACCEPT_ENCODING": question.accepted_encoding or "identity",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
