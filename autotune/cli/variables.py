"""The environment variables of `search`, and which of those that are set is none of them."""

from __future__ import annotations

import difflib
import os
import typing

from autotune.cli.search import search
from autotune.errors import UsageError

OURS = "AUTOTUNE_"


def check() -> None:
    """Raise `UsageError` for a variable that looks like a setting and is none: it would be ignored in silence."""
    known = [name for kind in typing.get_type_hints(search, include_extras=True).values() for name in _variables(kind)]
    for name in sorted(os.environ):
        if name.startswith(OURS) and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {close[0]}?" if close else "`autotune search --help` lists them."
            raise UsageError(
                f"The environment sets {name}, which autotune does not know. It was probably mistyped. {hint}"
            )


def _variables(kind: object) -> list[str]:
    return [one.envvar for one in getattr(kind, "__metadata__", ()) if isinstance(getattr(one, "envvar", None), str)]
