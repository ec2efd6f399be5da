"""Finds the words in which an argument takes a knob's values, and the flag that must accompany it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from autotune.knobs.base import Knob
from autotune.targets.commands.argument_meaning import meaning_of
from autotune.targets.commands.script.argument_names import normal
from autotune.targets.commands.script.declared_arguments import UNKNOWN, Argument

# Formats that share words: the argument names that decide for one.
PREFERRED = {"accelerate": "mixed_precision", "digits": "trainer.precision", "torch": "dtype"}
_AFFIRMING = re.compile(r"(use|enable|no|disable|without)_")


def format_of(argument: Argument | None, name: str, knob: Knob, value: str, *, is_gated: bool) -> str | None:
    """Return the format with this word: its name, or, if the script lists its choices, exactly these words."""
    order = sorted(knob.formats.get("", ()), key=lambda said: said is None)
    choices = argument.choices if argument is not None else ()
    fitting = [one for one, words in knob.formats.items() if one and value in words.values()]
    if choices:
        known = {word: said for words in knob.formats.values() for said, word in words.items()}
        words = {known[str(choice)]: str(choice) for choice in choices if str(choice) in known}
        if value not in words.values():
            return None
    else:
        by_name = [one for one in fitting if normal(name).endswith(PREFERRED.get(one, " "))]
        chosen = next(iter(by_name or fitting), None)
        if chosen is None or not is_gated:
            return chosen
        words = dict(knob.formats[chosen])
    if is_gated:
        words = {**words, None: value}
    return "/".join(words.get(said, "") for said in order)


def gates(arguments: Collection[Argument], typed: Mapping[str, str | None]) -> dict[str, str]:
    """Return the flags that switch on the value of another argument: `--amp` for `--amp-dtype bfloat16`.

    They are found by the names of both; `typed` are the values in the command. A probe later checks the guess.
    """
    return dict(pair for flag in arguments if flag.is_flag and not flag.off for pair in _gated(flag, arguments, typed))


def _gated(
    flag: Argument, arguments: Collection[Argument], typed: Mapping[str, str | None]
) -> Iterator[tuple[str, str]]:
    meaning = meaning_of(flag.name)
    if meaning is None or meaning.knob is None or not meaning.is_doubtful or not meaning.knob.value_names:
        return
    begin = _AFFIRMING.sub("", normal(flag.name)) + "_"
    for other in arguments:
        its = meaning_of(other.name)
        value = typed.get(other.name, other.default)
        if its is None or its.name != meaning.knob.name or its.is_doubtful or other.is_flag or value is UNKNOWN:
            continue
        halves = {word for words in meaning.knob.formats.values() for said, word in words.items() if said is not None}
        if normal(other.name).startswith(begin) and value in halves:
            yield flag.name, other.name
