"""Runs the `autotune` command for `python -m autotune`."""

from __future__ import annotations

import os
import sys

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109  # by -m: files there may be called as modules of Python
    del sys.path[0]

from autotune.cli import main

if __name__ == "__main__":
    main()
