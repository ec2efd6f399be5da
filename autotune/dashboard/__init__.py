"""Study pages that stay up to date, served read-only; `autotune dashboard` starts the server.

server.py        socket, host names, Uvicorn, until Ctrl-C        site.py      pages, made again if a study changed
application.py   addresses, headers, read-only: Starlette         reading.py   studies by file times, following no link
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from autotune.errors import UsageError


def serve(
    path: Path,
    host: str = "127.0.0.1",
    port: int = 8088,
    *,
    exposed: bool = False,
    names: Sequence[str] = (),
    on_ready: Callable[[str], None],
) -> None:
    """Serve the study in `path`, or all studies in it, until Ctrl-C; `on_ready` is given the address.

    An address beyond this machine needs `exposed`; `names` are then further host names that browsers may ask for.
    Raises `UsageError` for such an address, a taken port or a missing extra, `StudyNotFound` if the folder is missing.
    """
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"The dashboard needs {' and '.join(missing)}, not installed here. The extra of this package that brings "
            f"it was probably left out. Install it with `pip install -e '.[dashboard]'` in autotune's clone, or write "
            f"the page of a study to a file with `autotune report`."
        )
    from autotune.dashboard.server import StudyServer

    server = StudyServer(path, host, port, exposed=exposed, names=names)
    on_ready(server.address)
    server.run()
