"""Pieces of sentences: a capital first letter, and a list that is cut short."""

from __future__ import annotations

from collections.abc import Sequence


def capitalized(text: str) -> str:
    """Return `text` with a capital first letter, as the beginning of a sentence; the rest is unchanged."""
    return text[:1].upper() + text[1:]


def first_few(texts: Sequence[str], most: int, between: str = ", ") -> str:
    """Return `a, b, and 3 more`: the first `most` texts, and how many others there are."""
    left_out = len(texts) - most
    return between.join([*texts[:most], *([f"and {left_out} more"] if left_out > 0 else [])])
