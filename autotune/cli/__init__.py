"""The command line: thin commands that call the packages below. Importing it loads neither torch nor Optuna."""

from __future__ import annotations

import shlex
import sys
import traceback

from autotune import interrupts

FAULT_STATUS = 70  # EX_SOFTWARE of sysexits.h: autotune itself failed, which says nothing about what was asked
INTERRUPTED_STATUS = 130  # what a shell reports for a process that Ctrl-C ended


def main() -> None:
    """Run the `autotune` command: its entry point."""
    try:
        from autotune.cli.app import run

        run()
    except KeyboardInterrupt:
        interrupts.forget()  # what follows in this process is another command
        sys.exit(INTERRUPTED_STATUS)
    except Exception as error:
        from autotune.harmless import plain_lines

        sys.stderr.write(plain_lines(_report(error)))
        sys.exit(FAULT_STATUS)


def _report(error: Exception) -> str:
    """Return the message about a fault of autotune, with everything that a report of it needs."""
    import platform

    from autotune.machine.environment import autotune_version, torch_version

    what = str(error).partition("\n")[0].rstrip(".")
    return (
        f"error: autotune itself failed: {type(error).__name__}{': ' if what else ''}{what}. It is probably a mistake "
        f"in autotune and not yours. Please report it with all of the lines that follow.\n"
        f"version: autotune {autotune_version()}, torch {torch_version()}, Python {platform.python_version()}, "
        f"{platform.platform()}\n"
        f"command: {shlex.join(['autotune', *sys.argv[1:]])}\n"
        f"{''.join(traceback.format_exception(error))}"
    )
