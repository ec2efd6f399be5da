"""The command line: thin doors to the rooms behind. Importing it loads neither torch nor Optuna."""

from __future__ import annotations

import sys

INTERRUPTED = 130  # what a shell reports for a process that Ctrl-C ended


def main() -> None:
    """Entry point of the `autotune` command."""
    try:
        from autotune.cli.app import run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
