"""The names of arguments, however a script spells them."""

from __future__ import annotations

import re

NEGATIVE = re.compile(r"(no|disable|without)_")  # beginnings of names of arguments that switch something off


def normal(name: str) -> str:
    """Return a name without dashes, in lower case and with `_` for `-`."""
    return name.lstrip("-+").replace("-", "_").lower()


def is_negative(name: str) -> bool:
    """Return whether the name of an argument says that it switches something off: `--no-bf16`."""
    return NEGATIVE.match(normal(name)) is not None
