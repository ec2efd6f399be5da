"""The arguments that stand in a command, as they were typed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autotune.targets.commands.script.declared_arguments import Argument

_KEY = re.compile(r"(?:\+\+?)?([A-Za-z_][\w.@/-]*)=(.*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Given:
    """One argument as it is written in the command."""

    option: str  # as it was typed, without a value
    name: str  # the longest of its names in the script
    value: str | None  # None: a flag
    at: int  # position of its first word
    inline: bool  # `--name=value`, `-b64`: one word


def given(words: Sequence[str], start: int, declared: Mapping[str, Argument]) -> Iterator[Given]:
    """Yield the arguments of a command, from left to right, up to a word `--`."""
    at = start
    while at < len(words) and words[at] != "--":
        word, following = words[at], words[at + 1] if at + 1 < len(words) else None
        key = None if word.startswith("-") else _KEY.fullmatch(word)
        if key:
            yield Given(option=key[1], name=key[1], value=key[2], at=at, inline=True)
        elif re.match(r"--?[A-Za-z]", word):
            option, equals, value = word.partition("=")
            if _is_attached(word, declared):
                option, equals, value = word[:2], "", word[2:]
            argument = _declared(option, declared)
            name = argument.name if argument else option
            if value or equals:
                yield Given(option=option, name=name, value=value, at=at, inline=True)
            elif _takes_next(argument, following):
                yield Given(option=option, name=name, value=following, at=at, inline=False)
                at += 1
            else:
                yield Given(option=option, name=name, value=None, at=at, inline=False)
        at += 1


def _is_attached(word: str, declared: Mapping[str, Argument]) -> bool:
    """Return whether the word is a short option with its value: `-b64`."""
    if word.startswith("--") or word.partition("=")[0] in declared or word[:2] not in declared:
        return False
    return len(word) > 2 and word[2] != "=" and not declared[word[:2]].is_flag


def _declared(option: str, declared: Mapping[str, Argument]) -> Argument | None:
    """Return the declared argument of an option, also by the beginning of its name, as in argparse; None: none."""
    if option in declared or not option.startswith("--"):
        return declared.get(option)
    begun = {one for name, one in declared.items() if name.startswith(option)}
    return begun.pop() if len(begun) == 1 else None


def _takes_next(argument: Argument | None, following: str | None) -> bool:
    if following is None or (argument is not None and argument.is_flag):
        return False
    return not following.startswith("-") or re.fullmatch(r"-[0-9.]+", following) is not None
