"""The command line: thin doors to the rooms behind. Importing it loads neither torch nor Optuna."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `autotune` command."""
    from autotune.cli.app import run

    run()
