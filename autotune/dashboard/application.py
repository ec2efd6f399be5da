"""The Starlette application of a `Site`: its addresses, who may ask for them and how, and the headers of answers."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autotune.dashboard.site import Page, Site
from autotune.errors import AutotuneError, StudyNotFound
from autotune.harmless import plain_lines

logger = logging.getLogger(__name__)

NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {  # no foreign content, no frames, no content sniffing, no caching; one answer per connection
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",
}


def application(site: Site, host_names: Sequence[str]) -> ASGIApp:
    """Return the application with the site's pages, for browsers that ask by one of these names."""

    def page(find: Callable[[Request], Page]) -> Callable[[Request], Response]:
        return lambda request: _page_response(find(request), site.nonce, request)

    def log(request: Request) -> Response:
        return _text(site.log(request.path_params.get("name"), request.path_params["number"]))

    def with_slash(request: Request) -> Response:
        return RedirectResponse(f"/studies/{quote(site.folder(request.path_params['name']).name)}/", 308)

    def compare(request: Request) -> Response:
        asked = request.query_params
        both = asked.getlist("study") or [asked.get(side, "") for side in "ab"]
        if len(both) != 2:
            return _text("Two studies can be compared: go back and tick two of the list.\n", 400)
        return page(lambda _: site.comparison(*both))(request)

    study: list[Route | Mount] = [
        Route("/", page(lambda request: site.study(request.path_params.get("name")))),
        Route("/probes/{number}/log.txt", log),
    ]
    studies = [
        Route("/", page(lambda _: site.index())),
        Route("/compare", compare),
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
    routed.router.redirect_slashes = False  # its redirections contain the host name
    # A foreign name that leads to this machine would let a foreign web page read the studies (DNS rebinding).
    return _ReadOnly(TrustedHostMiddleware(routed, host_names, www_redirect=False))


class _ReadOnly:
    """Refuses everything but GET and HEAD, and adds the headers to each answer."""

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
        elif scope["path"].endswith("\n"):  # a route's `$` also matches before it
            inner = _text("There is no such page.\n", 404)
        await inner(scope, receive, send_guarded)


def _page_response(page: Page, nonce: str, request: Request) -> Response:
    """Return the page, each time with a new nonce; only its tag if the browser has the page already."""
    tag = f'"{page.stamp}"'
    if request.headers.get("If-None-Match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    fresh = secrets.token_urlsafe(16)
    policy = (  # only style and script with the nonce count, and no other server is ever asked for anything
        f"default-src 'none'; style-src 'nonce-{fresh}'; script-src 'nonce-{fresh}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    body = page.html.replace(nonce, fresh).encode("utf-8", "replace")
    return HTMLResponse(body, headers={"ETag": tag, "Content-Security-Policy": policy})


def _text(message: str, status: int = 200) -> Response:
    """Return a sentence or a log as plain text, whatever it contains, for a browser and for a terminal."""
    return PlainTextResponse(plain_lines(message), status)


def _our_fault(request: Request, error: Exception) -> Response:
    logger.error("no answer to %s", request.url.path, exc_info=error)
    return _text(f"autotune itself failed: {type(error).__name__}: {error}. Please report it.\n", 500)
