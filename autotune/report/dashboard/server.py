"""The server of a `Site`: where it listens, by which names it may be asked, and what every answer carries."""

from __future__ import annotations

import errno
import ipaddress
import logging
import secrets
import socket
from asyncio import BaseTransport, TimerHandle
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psutil
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from autotune.errors import AutotuneError, StudyNotFound, UsageError
from autotune.harmless import plain_lines
from autotune.report.dashboard.site import Page, Site

logger = logging.getLogger(__name__)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

PATIENCE_SECONDS = 60.0  # from a connection to the end of its only answer
MOST_PORT = 65535
MOST_CONNECTIONS = 64  # at once; a browser has six
CLOSING_SECONDS = 1  # that answers under way get after Ctrl-C
NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {  # no foreign content, no frames, no guessing, no keeping; one answer a connection
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",
}


class StudyServer:
    """The server of the study in `path`, or of all studies in it: bound when made, serving in `run`.

    Port 0 takes any free one. Raises what `autotune.report.dashboard.serve` raises.
    """

    def __init__(
        self,
        path: Path,
        host: str = "127.0.0.1",
        port: int = 8088,
        *,
        exposed: bool = False,
        names: Sequence[str] = (),
    ) -> None:
        if not path.is_dir():
            raise StudyNotFound(
                f"{path} is not a folder. A study folder, or a folder of studies, was probably meant. "
                f"Run `autotune search` first, or name another one."
            )
        address = _listening_address(host, port, exposed=exposed)
        application = _application(Site(path), _host_names(address, names))
        self._socket = _bound(address, port)
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                application,
                http=_Connection,
                ws="none",
                lifespan="off",
                loop="asyncio",
                log_config=None,
                log_level="critical",  # a malformed request is no event
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_graceful_shutdown=CLOSING_SECONDS,
            )
        )

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._socket.getsockname()[1])

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        host = str(self._socket.getsockname()[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def run(self) -> None:
        """Serve until Ctrl-C, or until another thread calls `stop`."""
        with self._socket, suppress(KeyboardInterrupt):
            self._uvicorn.run(sockets=[self._socket])

    def stop(self) -> None:
        """End `run`."""
        self._uvicorn.should_exit = True


class _Connection(H11Protocol):
    """A connection that is cut when its time is over, whichever side is slow: Uvicorn waits for ever."""

    _end: TimerHandle

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]  # it is one that also writes
        self._end = self.loop.call_later(PATIENCE_SECONDS, self.transport.abort)

    def eof_received(self) -> bool:  # type: ignore[override]  # Uvicorn closes, and a client that has said all gets nothing
        return self.cycle is not None

    def connection_lost(self, exc: Exception | None) -> None:
        self._end.cancel()
        super().connection_lost(exc)


def _application(site: Site, host_names: Sequence[str]) -> ASGIApp:
    """The pages of the site under their addresses, for browsers that ask by one of these names."""

    def page(find: Callable[[Request], Page]) -> Callable[[Request], Response]:
        return lambda request: _page_response(find(request), site.nonce, request)

    def log(request: Request) -> Response:
        return _text(site.log(request.path_params.get("name"), request.path_params["number"]))

    def with_slash(request: Request) -> Response:
        return RedirectResponse(f"/studies/{quote(site.folder(request.path_params['name']).name)}/", 308)

    study: list[Route | Mount] = [
        Route("/", page(lambda request: site.study(request.path_params.get("name")))),
        Route("/probes/{number}/log.txt", log),
    ]
    studies = [
        Route("/", page(lambda _: site.index())),
        Route(
            "/compare", page(lambda request: site.comparison(*(request.query_params.get(side, "") for side in "ab")))
        ),
        Route("/studies/{name}", with_slash),
        Mount("/studies/{name}", routes=study),
    ]
    routed = Starlette(
        routes=study if site.is_single_study else studies,
        exception_handlers={
            404: lambda *_: _text("There is no such page.\n", 404),
            StudyNotFound: lambda _, error: _text(f"{error}\n", 404),
            AutotuneError: lambda _, error: _text(f"{error}\n", 500),
            OSError: lambda _, error: _text(f"{error}\n", 500),
            Exception: _our_fault,
        },
    )
    routed.router.redirect_slashes = False  # its redirections name the host
    # A foreign name that leads to this machine is how a foreign web page would read us (DNS rebinding).
    return _ReadOnly(TrustedHostMiddleware(routed, host_names, www_redirect=False))


class _ReadOnly:
    """Refuses everything but GET and HEAD, and gives every answer its headers."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", NOTHING)
                headers.update(HEADERS)
            await send(message)

        inner = self._inner
        if scope["method"] not in ("GET", "HEAD"):
            inner = PlainTextResponse("Read only.\n", 405, headers={"Allow": "GET, HEAD"})
        elif scope["path"].endswith("\n"):  # a route's `$` matches before it
            inner = _text("There is no such page.\n", 404)
        await inner(scope, receive, send_guarded)


def _page_response(page: Page, nonce: str, request: Request) -> Response:
    """The page, each time with a nonce of its own; nothing but its tag where the browser has it already."""
    tag = f'"{page.stamp}"'
    if request.headers.get("If-None-Match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    fresh = secrets.token_urlsafe(16)
    policy = (  # only style and script that carry the nonce count, and no other server is ever asked for anything
        f"default-src 'none'; style-src 'nonce-{fresh}'; script-src 'nonce-{fresh}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    body = page.html.replace(nonce, fresh).encode("utf-8", "replace")
    return HTMLResponse(body, headers={"ETag": tag, "Content-Security-Policy": policy})


def _text(message: str, status: int = 200) -> Response:
    """A sentence or a log: to a browser and to a terminal nothing but text, whatever it contains."""
    return PlainTextResponse(plain_lines(message), status)


def _our_fault(request: Request, error: Exception) -> Response:
    logger.error("no answer to %s", request.url.path, exc_info=error)
    return _text(f"autotune itself failed: {type(error).__name__}: {error}. Please report it.\n", 500)


def _listening_address(host: str, port: int, *, exposed: bool) -> Address:
    """The address to listen on. Raises `UsageError` for a name, and for one beyond this machine unless `exposed`."""
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise UsageError(
            f"--host {host} is not an address. A name may belong to several addresses, of which one must be chosen. "
            f"Use --host 127.0.0.1, or with --expose an address of this machine or 0.0.0.0 for all of them."
        ) from None
    if not address.is_loopback and not exposed:
        raise UsageError(
            f"The dashboard would listen on {host}, which others can reach. It shows source paths, error texts and "
            f"logs to whoever asks, without a password and unencrypted. Use --host 127.0.0.1 and from another machine "
            f"`ssh -L {port}:127.0.0.1:{port} THIS-MACHINE`, or add --expose if everybody there may read all that."
        )
    return address


def _host_names(address: Address, names: Sequence[str]) -> tuple[str, ...]:
    """The names by which a browser may ask: this machine's own addresses, and where others can reach it its names."""
    known = ["localhost", "127.0.0.1", "[::1]", f"[{address}]" if address.version == 6 else str(address)]
    if not address.is_loopback:
        own = (card.address.partition("%")[0] for cards in psutil.net_if_addrs().values() for card in cards)
        known += [f"[{one}]" if ":" in one else one for one in own]
        known += [socket.gethostname(), *names]
    if "*" in "".join(known):
        raise UsageError(
            "--allow-host takes whole names only. With a * any foreign web page could read the studies. "
            "Give each name by an --allow-host of its own."
        )
    return tuple(name for name in known if name)


def _bound(address: Address, port: int) -> socket.socket:
    is_v6 = address.version == 6
    try:
        if port > MOST_PORT:
            raise OverflowError(f"the last one is {MOST_PORT}")
        return socket.create_server(
            (str(address), port),
            family=socket.AF_INET6 if is_v6 else socket.AF_INET,
            backlog=MOST_CONNECTIONS,
            dualstack_ipv6=is_v6 and socket.has_dualstack_ipv6(),
        )
    except (OSError, OverflowError) as error:
        why = "is taken" if getattr(error, "errno", None) == errno.EADDRINUSE else f"cannot be used ({error})"
        raise UsageError(
            f"Port {port} of {address} {why}. Another dashboard is probably running. "
            f"Open that one, or choose another port with --port {port + 1 if port < MOST_PORT else 0}."
        ) from error
