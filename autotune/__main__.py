"""Runs the `autotune` command for `python -m autotune`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the working folder, by -m: files there may be called as modules of Python
    from autotune.cli import main

    main()
