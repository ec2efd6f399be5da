"""The child of `tests/session_launcher.py`: a forked one goes to the working folder that its request was made in."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from autotune.child import fork_server
from autotune.child.__main__ import main, parse

if __name__ == "__main__":
    place, arguments = Path(sys.argv[1]), sys.argv[2:]

    def work(arguments: Sequence[str]) -> int:
        """What `python -m autotune.child` does, there."""
        os.chdir((place / "here").read_text())
        return main(arguments)

    options = parse(arguments)
    if options.fork_server is None:
        fork_server.leave(work(arguments))
    fork_server.serve(options.fork_server, options.lifeline, work, fork_server.prepare)
    fork_server.leave(0)
