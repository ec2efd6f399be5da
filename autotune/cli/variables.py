"""The environment variables of `search`: which of those that are set is none of them, or no switch."""

from __future__ import annotations

import difflib
import os
import typing

from autotune.cli.search import search
from autotune.errors import UsageError

OURS = "AUTOTUNE_"
SWITCHES = ("true", "yes", "on", "1", "t", "y", "false", "no", "off", "0", "f", "n")  # in any case, as Typer reads them


def check() -> None:
    """Raise `UsageError` for a variable that looks like a setting and is none, or is neither on nor off.

    The one would be ignored in silence, the other refused in words that name no value.
    """
    kinds = {
        name: typing.get_args(kind)[0]
        for kind in typing.get_type_hints(search, include_extras=True).values()
        for name in _variables(kind)
    }
    for name in sorted(os.environ):
        if name.startswith(OURS) and name not in kinds:
            close = difflib.get_close_matches(name, kinds, n=1)
            hint = f"Did you mean {close[0]}?" if close else "`autotune search --help` lists them."
            raise UsageError(
                f"The environment sets {name}, which autotune does not know. It was probably mistyped. {hint}"
            )
        value = os.environ[name]
        if kinds.get(name) is bool and value and value.lower() not in SWITCHES:
            raise UsageError(
                f"The environment sets {name} to {value!r}, which is neither on nor off. It was probably mistyped. "
                f"Use one of: {', '.join(SWITCHES)}."
            )


def _variables(kind: object) -> list[str]:
    return [one.envvar for one in getattr(kind, "__metadata__", ()) if isinstance(getattr(one, "envvar", None), str)]
