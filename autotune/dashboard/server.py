"""The server of a `Site`: where it listens, the names by which it may be asked, and how long a connection may last."""

from __future__ import annotations

import errno
import ipaddress
import socket
from asyncio import BaseTransport, TimerHandle
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from autotune.dashboard.application import application
from autotune.dashboard.site import Site
from autotune.errors import StudyNotFound, UsageError
from autotune.study.disk import STUDIES

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

CONNECTION_SECONDS = 60.0  # from the start of a connection to the end of its only answer
MOST_CONNECTIONS = 64  # at once; a browser opens six
CLOSING_SECONDS = 1  # for unfinished answers after Ctrl-C


class StudyServer:
    """The server of the study in `path`, or of all studies in it: it listens once made, and serves in `run`.

    Port 0 takes any free one. Raises what `autotune.dashboard.serve` raises.
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
        if not path.is_dir() and (path.exists() or path != STUDIES):  # the first search makes that folder
            raise StudyNotFound(
                f"{path} is not a folder. A study folder, or a folder of studies, was probably meant. "
                f"Run `autotune search` first, or name another one."
            )
        address = _listening_address(host, port, exposed=exposed)
        pages = application(Site(path), _host_names(address, names))
        self._socket = _bound(address, port)
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                pages,
                http=_Connection,
                ws="none",
                lifespan="off",
                loop="asyncio",
                log_config=None,
                log_level="critical",  # a malformed request is not worth a message
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_graceful_shutdown=CLOSING_SECONDS,
            )
        )

    @property
    def port(self) -> int:
        """The TCP port that the server listens on."""
        return int(self._socket.getsockname()[1])

    @property
    def address(self) -> str:
        """The address for a browser."""
        host = str(self._socket.getsockname()[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def run(self) -> None:
        """Serve until Ctrl-C, or until another thread calls `stop`."""
        with self._socket, suppress(KeyboardInterrupt):
            self._uvicorn.run(sockets=[self._socket])

    def stop(self) -> None:
        """Make `run` return; may be called from another thread."""
        self._uvicorn.should_exit = True


class _Connection(H11Protocol):
    """A connection that is cut when its time is over, whichever side is slow, because Uvicorn waits for ever."""

    _end: TimerHandle

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]  # it is one that also writes
        self._end = self.loop.call_later(CONNECTION_SECONDS, self.transport.abort)

    def eof_received(self) -> bool:  # type: ignore[override]  # Uvicorn closes, and a client that has sent all gets nothing
        return self.cycle is not None

    def connection_lost(self, exc: Exception | None) -> None:
        self._end.cancel()
        super().connection_lost(exc)


def _listening_address(host: str, port: int, *, exposed: bool) -> Address:
    """Return the address to listen on. Raises `UsageError` for a name, or if beyond this machine unless `exposed`."""
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
    """Return the names by which a browser may ask: this machine's addresses, and its names if others can reach it."""
    known = ["localhost", "127.0.0.1", "[::1]", f"[{address}]" if address.version == 6 else str(address)]
    if not address.is_loopback:
        own = (card.address.partition("%")[0] for cards in psutil.net_if_addrs().values() for card in cards)
        known += [f"[{one}]" if ":" in one else one for one in own]
        known += [socket.gethostname(), *names]
    elif names:
        raise UsageError(
            f"--allow-host {names[0]} would change nothing: only this machine reaches {address}, by its own names. "
            f"--expose was probably left out. Add --expose and --host 0.0.0.0, or leave --allow-host out."
        )
    if "*" in "".join(known):
        raise UsageError(
            "--allow-host takes whole names only. With a * any foreign web page could read the studies. "
            "Give each name by an --allow-host of its own."
        )
    return tuple(name for name in known if name)


def _bound(address: Address, port: int) -> socket.socket:
    is_v6 = address.version == 6
    try:
        return socket.create_server(
            (str(address), port),
            family=socket.AF_INET6 if is_v6 else socket.AF_INET,
            backlog=MOST_CONNECTIONS,
            dualstack_ipv6=is_v6 and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used ({error})"
        raise UsageError(
            f"Port {port} of {address} {why}. Another dashboard is probably running. "
            f"Open that one, or let any free port be chosen with --port 0."
        ) from error
