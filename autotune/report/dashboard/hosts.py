"""Where the server listens, and under which names it may be asked."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.errors import UsageError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def listening_address(host: str, port: int, *, exposed: bool) -> Address:
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


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """The names under which a browser may ask: those that no foreign web page can make its own."""

    exposed: bool = False
    names: tuple[str, ...] = ()  # besides the loopback's

    def known(self, headers: Sequence[str], reached: str) -> bool:
        """Whether the Host headers name this server once, by any port, since a tunnel may lead here from another one.

        `reached` is the address that the connection came in on. An address in place of a name is safe: a page that
        was loaded from it came from us.
        """
        if len(headers) != 1:
            return False
        name = re.sub(r":[0-9]+$", "", headers[0]).strip("[]").lower()
        if name == "localhost" or name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or (self.exposed and name == reached.removeprefix("::ffff:"))


def own_names(more: Sequence[str]) -> tuple[str, ...]:
    """What this machine calls itself, and `more` names that the user vouches for."""
    return tuple(name.lower() for name in (socket.gethostname(), *more) if name)
