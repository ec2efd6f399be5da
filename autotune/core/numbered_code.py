"""A code with a number, a sentence and a next step: what `codes.py` lists."""

from __future__ import annotations

from enum import StrEnum


class NumberedCode(StrEnum):
    """The base of the list. A number never gets another meaning."""

    number: int  # for people: stable, as the code itself is
    sentence: str  # what it means
    next_step: str  # what to do; empty: nothing

    def __new__(cls, code: str, number: int, sentence: str, next_step: str = "") -> NumberedCode:
        """Make the member, whose value is its code alone."""
        member = str.__new__(cls, code)
        member._value_, member.number, member.sentence, member.next_step = code, number, sentence, next_step
        return member
