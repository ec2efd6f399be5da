"""The names of arguments, however a script spells them."""

from __future__ import annotations

import re

NEGATIVE = re.compile(r"(no|disable|without)_")  # how the name of an argument that switches something off begins


def normal(name: str) -> str:
    """Return a name without dashes, in lower case and with `_` for `-`."""
    return name.lstrip("-+").replace("-", "_").lower()


def is_negative(name: str) -> bool:
    """Return whether an argument is called after what it switches off: `--no-bf16`."""
    return NEGATIVE.match(normal(name)) is not None
