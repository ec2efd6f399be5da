"""One placeholder of a command: the place of a knob's value, written in the words of the command."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from autotune.core.records import Value
from autotune.errors import TargetError
from autotune.knobs import OURS
from autotune.knobs.base import SWITCH_WORDS, Knob
from autotune.knobs.declared import DeclaredKnob, declaration, is_mistyped, scalar

OUTPUT_DIR = "output_dir"
NAMES = (OUTPUT_DIR, *(one.name for one in OURS), *(name for one in OURS for name in one.value_names))
FLAG, NO_FLAG = "flag", "noflag"
ON_OFF: Mapping[Value, str] = {True: "true", False: "false"}
OFF_ON: Mapping[Value, str] = {True: "false", False: "true"}  # of a flag that switches off
PLACEHOLDER = re.compile(r"(\{*)(\{([A-Za-z_]\w*)(?::([^{}=\s]*))?(?:=([^{}]*))?\})(\}*)")

WHOLE = re.compile(r"(?:[^{}]*=)?(\{([A-Za-z_]\w*)(?::([^{}=\s]*))?(?:=[^{}]*)?\})")  # a word, or what it sets
OPEN = re.compile(r"(?:[^{}]*=)?(\{([A-Za-z_]\w*)[:=]([^{}\s]*))")  # the same without a closing brace
NEAR_NAME_RATIO = 0.8  # difflib's ratio from which two names are probably the same; {epoch} is like none


@dataclass(frozen=True, kw_only=True)
class Placeholder:
    """A place in a word for a knob's value, or for the folder of a probe's output."""

    text: str  # as it was written
    name: str  # of a knob, of a switch, or OUTPUT_DIR
    knob: Knob | None  # None: the folder
    words: Mapping[Value, str] | None  # words by value, for values that can be written; None: as they are
    stands_for: Value = None  # of a switch: the value that it asks for
    is_switch: bool = False
    is_flag: bool = False
    is_negated: bool = False  # a flag that is there where the value is not
    is_gate: bool = False  # a flag that says whether there is any value but None; another placeholder says which
    today: str | None = None  # the text that stands there today

    @classmethod
    def parse(cls, text: str, name: str, format_name: str | None, today: str | None) -> Self:
        """Return the placeholder with these three parts. Raises `TargetError`."""
        if name == OUTPUT_DIR:
            return cls(text=text, name=name, knob=None, words=None, today=today)
        owner = owner_of(name)
        if owner is None and is_declaration(name, format_name):
            return cls._declared(text, name, format_name or "", today)
        if owner is None:
            raise _no_knob(text, name)
        is_switch = name in owner.value_names
        is_truth = is_switch or owner.is_truth
        is_flag = format_name in (FLAG, NO_FLAG)
        is_gate = is_flag and not is_truth
        if is_gate and not owner.value_names:
            raise too_many_values(text, owner)
        is_negated = format_name == NO_FLAG
        words: Mapping[Value, str] | None
        if is_flag:
            words = OFF_ON if is_negated else ON_OFF
        else:
            words = _words(text, owner, format_name or "", is_switch=is_truth)
        return cls(
            text=text, name=name, knob=owner, words=words, is_flag=is_flag, today=today,
            is_switch=is_switch, stands_for=owner.value_names.get(name), is_negated=is_negated,
            is_gate=is_gate,
        )  # fmt: skip

    @classmethod
    def _declared(cls, text: str, name: str, listed: str, today: str | None) -> Self:
        """Return the placeholder of a knob of the user's own, whose values it lists. Raises `TargetError`."""
        words = listed.split("/")
        try:
            declared = declaration(name, [scalar(word) for word in words])
        except ValueError as error:
            raise TargetError(
                f"{text} in the command declares a knob of yours: {error}. List its values between slashes, such as "
                f"{{{name}:a/b}}."
            ) from error
        by_value = dict(zip(declared.values, words, strict=True))
        return cls(text=text, name=name, knob=DeclaredKnob(declared), words=by_value, today=today or words[0])

    def value(self) -> Value | None:
        """Return the value that the command has today; for a switch, whether it is on. Raises `TargetError`."""
        assert self.knob is not None and self.today is not None, "asked of what says nothing"
        for value, word in (self.words or {}).items():
            if word == self.today:
                return value
        try:
            return SWITCH_WORDS[self.today.lower()] if self.is_switch else self.knob.parse(self.today)
        except (ValueError, KeyError) as error:
            words = ", ".join(filter(None, (self.words or {}).values())) or "a value of the knob"
            raise TargetError(
                f"{self.text} says that the command has {self.today!r} there today. It can have {words}. Correct what "
                f"follows the `=`, or leave it out."
            ) from error

    def word(self, values: Mapping[str, Value]) -> str | None:
        """Return the word for `values` by knob name; None: the value cannot be written there."""
        assert self.knob is not None, "asked of the folder"
        value = values[self.knob.name]
        if self.is_switch:
            value = value == self.stands_for
        if self.is_gate:
            value = value is not None
        if self.words is None:
            return None if value is None else str(value)
        return self.words.get(value)


def names_a_knob(word: str) -> bool:
    """Return whether a typed word contains a placeholder: other text in braces is none."""
    return any(
        (found[3] == OUTPUT_DIR or owner_of(found[3])) and not (found[1] and found[6])
        for found in PLACEHOLDER.finditer(word)
    )


def is_declaration(name: str, format_name: str | None) -> bool:
    """Return whether it declares a user's knob: it lists values, and its name is not, and is not like, one of ours."""
    return owner_of(name) is None and "/" in (format_name or "") and not is_mistyped(name, NAMES)


def unfinished(word: str) -> str:
    """Return a sentence about what a probable placeholder lacks; empty: the word has none."""
    if (found := OPEN.fullmatch(word)) and (owner_of(found[2]) or "/" in found[3]):
        return f"{found[1]} has no closing brace, and is given to the script as it stands"
    if (found := WHOLE.fullmatch(word)) is None:
        return ""
    text, name, format_name = found.groups()
    if name == OUTPUT_DIR or owner_of(name) or is_declaration(name, format_name):
        return ""
    told = f"{text} is no placeholder, and is given to the script as it stands"
    if near := difflib.get_close_matches(name, NAMES, n=1, cutoff=NEAR_NAME_RATIO):
        return f"{told} (did you mean {text.replace(name, near[0], 1)}?)"
    is_number = format_name is not None and not format_name[:1].isalpha()  # the script itself fills {loss:.3f}
    return "" if is_number else f"{told} (a knob of yours is written with its values: {{{name}:a/b}})"


def escaped(word: str) -> str:
    """Return a typed word with its braces doubled, except braces that declare a user's knob."""

    def doubled(found: re.Match[str]) -> str:
        is_bare = not (found[1] or found[6])
        return found[0] if is_bare and is_declaration(found[3], found[4]) else f"{{{found[0]}}}"

    return PLACEHOLDER.sub(doubled, word)


def owner_of(name: str) -> Knob | None:
    """Return the knob with this name, alias or switch name; None: there is none."""
    return next((one for one in OURS if name in (one.name, one.alias, *one.value_names)), None)


def literal(text: str) -> str:
    """Return `text` escaped, so that it is no placeholder."""
    return PLACEHOLDER.sub(lambda found: f"{{{found[0]}}}", text)


def _no_knob(text: str, name: str) -> TargetError:
    near = difflib.get_close_matches(name, NAMES, n=1)
    hint = f"Did you mean {{{near[0]}}}?" if near else f"There are {', '.join(NAMES)}."
    return TargetError(
        f"{text} in the command is no knob. {hint} Write {literal(text)} where the command itself has braces, and "
        f"{{{name}:a/b/c}} for a knob of your own with its values."
    )


def _words(text: str, owner: Knob, format_name: str, *, is_switch: bool) -> Mapping[Value, str] | None:
    """Return the words of a format, by value. Raises `TargetError`."""
    if "/" in format_name:
        values: tuple[Value, ...] = (
            (True, False) if is_switch else tuple(sorted(owner.formats.get("", ()), key=lambda value: value is None))
        )
        words = format_name.split("/")
        if len(words) == len(values):
            return {value: word for value, word in zip(values, words, strict=True) if word}
    elif is_switch and not format_name:
        return ON_OFF
    elif format_name in owner.formats or not format_name:
        return owner.formats.get(format_name)
    listed = [FLAG, "true/false"] if is_switch else [one for one in owner.formats if one]
    raise TargetError(
        f"{text} has a format that {owner.name} does not have. "
        + (f"Use one of {', '.join(listed)}." if listed else f"It has none: write {{{owner.name}}}.")
    )


def too_many_values(text: str, owner: Knob) -> TargetError:
    """Return the error that a flag cannot express all values of the knob."""
    return TargetError(
        f"{text} asks for a word that is there or not, and {owner.name} has more than two values. {_switches(owner)}"
    )


def _switches(owner: Knob) -> str:
    if not owner.value_names:
        return f"Write the argument that takes it, such as --{owner.name.replace('_', '-')} {{{owner.name}}}."
    return f"Write {' or '.join(f'{{{name}:{FLAG}}}' for name in owner.value_names)}."
