"""A command with placeholders for knobs: `-- python train.py --batch-size {batch_size=64} {bf16:flag}`.

{batch_size}          the knob's value
{batch_size=64}       the same; the command says 64 today, which is the baseline
{amp_dtype:short}     in the words of a format: bf16, fp16, fp32; see `Knob.formats`
{amp_dtype:a/b/c}     in words of one's own, in the order of the knob's values: bfloat16, float16, None; or true, false
{bf16:true/false}     a switch: whether the knob has this value; see `Knob.switches`
--amp{bf16:flag}      the word before it is there or not; `{bf16:flag}` alone is `--bf16`
{output_dir=runs}     a scratch folder of the probe
{{name}}              `{name}` itself
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Self

from autotune.core.records import Value
from autotune.errors import TargetError
from autotune.knobs import KNOBS, knob
from autotune.knobs.base import SWITCH_WORDS, Knob

PREFIX = "-- "  # of a target that is a command
OUTPUT_DIR = "output_dir"
FLAG = "flag"
ON_OFF: Mapping[Value, str] = {True: "true", False: "false"}
_PLACEHOLDER = re.compile(r"(\{*)(\{([A-Za-z_]\w*)(?::([^{}=\s]*))?(?:=([^{}]*))?\})(\}*)")


def is_command(text: str) -> bool:
    """Return whether a target's text is a command."""
    return text == PREFIX.strip() or text.startswith(PREFIX)


@dataclass(frozen=True, kw_only=True)
class Placeholder:
    """A place in a word that a knob's value, or the folder for what a probe writes, is put into."""

    text: str  # as it was written
    name: str  # of a knob, of a switch, or OUTPUT_DIR
    knob: Knob | None  # None: the folder
    words: Mapping[Value, str] | None  # of the values that can be written; None: as they are
    stands_for: Value = None  # of a switch: the value that it asks for
    is_switch: bool = False
    is_flag: bool = False
    today: str | None = None  # what the command says today

    @classmethod
    def parse(cls, text: str, name: str, format_name: str | None, today: str | None) -> Self:
        """Return what the three parts of a placeholder mean. Raises `TargetError`."""
        if name == OUTPUT_DIR:
            return cls(text=text, name=name, knob=None, words=None, today=today)
        owner, switch = _owner(text, name)
        is_truth = switch is not None or set(owner.formats.get("", ())) == {True, False}
        is_flag = format_name == FLAG
        if is_flag and not is_truth:
            raise TargetError(
                f"{text} asks for a word that is there or not, and {owner.name} has more than two values. "
                f"{_switches(owner)}"
            )
        words = ON_OFF if is_flag else _words(text, owner, format_name or "", is_switch=is_truth)
        return cls(
            text=text, name=name, knob=owner, words=words, is_flag=is_flag, today=today,
            is_switch=switch is not None, stands_for=None if switch is None else owner.switches[switch],
        )  # fmt: skip

    def value(self) -> Value | None:
        """Return the knob's value that the command has today, or the truth of a switch. Raises `TargetError`."""
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
        """Return what stands there for `values` by knob name; None: this cannot be said there."""
        assert self.knob is not None, "asked of the folder"
        value = values[self.knob.name]
        if self.is_switch:
            value = value == self.stands_for
        if self.words is None:
            return None if value is None else str(value)
        return self.words.get(value)


Word = tuple[str | Placeholder, ...]


@dataclass(frozen=True, kw_only=True)
class CommandTemplate:
    """A command, word by word."""

    words: tuple[Word, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the command that a target's text is, quoted as in a shell. Raises `TargetError`."""
        return cls.of(cls.split(text))

    @staticmethod
    def split(text: str) -> list[str]:
        """Return the words of a target's text, with their placeholders. Raises `TargetError`."""
        try:
            return shlex.split(text.removeprefix(PREFIX.strip()))
        except ValueError as error:
            raise TargetError(
                f"The command {text!r} cannot be split into words: {error}. A quote is probably missing. Type it as in "
                f"a shell."
            ) from error

    @classmethod
    def of(cls, words: list[str]) -> Self:
        """Return the command that consists of these words. Raises `TargetError`."""
        if not words:
            raise TargetError("There is no command after `--`. Type it as you run it: -- python train.py --epochs 3.")
        found = cls(words=tuple(_parts(word) for word in words))
        found.baseline  # noqa: B018  # which finds what contradicts itself
        return found

    @property
    def text(self) -> str:
        """The target's text, which `parse` reads."""
        return PREFIX + " ".join(
            _quoted("".join(part.text if isinstance(part, Placeholder) else literal(part) for part in word))
            for word in self.words
        )

    @property
    def name(self) -> str:
        """What the study is called: the name of the script or of the module, else of the program."""
        words = ["".join(part for part in word if isinstance(part, str)) for word in self.words]
        behind = [words[n + 1] for n, word in enumerate(words[:-1]) if word == "-m"]
        scripts = [word for word in words if word.endswith(".py")]
        return Path([*behind, *scripts, words[0]][0]).name.removesuffix(".py").rpartition(".")[2]

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        """All of them, from left to right."""
        return tuple(part for word in self.words for part in word if isinstance(part, Placeholder))

    @property
    def knobs(self) -> tuple[str, ...]:
        """The names of the knobs that the command carries, in the order of the registry."""
        carried = {one.knob.name for one in self.placeholders if one.knob is not None}
        return tuple(one.name for one in KNOBS if one.name in carried)

    @property
    def takes_output_dir(self) -> bool:
        """Whether what a probe writes can be told where to go."""
        return any(one.knob is None for one in self.placeholders)

    @property
    def baseline(self) -> dict[str, Value]:
        """What the command says today, by knob name. Raises `TargetError` where it says two things at once."""
        said: dict[str, Value] = {}
        for one in self.placeholders:
            if one.knob is None or one.today is None:
                continue
            value = one.value()
            if one.is_switch:
                value = one.stands_for if value else said.get(one.knob.name)
            if said.get(one.knob.name, value) not in (value, None):
                raise TargetError(
                    f"The command says {one.knob.name} {said[one.knob.name]} and {value} at once: {self.text}. Only "
                    f"one of them can be what it runs today. Correct one."
                )
            said[one.knob.name] = value
        return said

    def can_say(self, name: str, value: Value) -> bool:
        """Return whether the command can be given this value of a knob that it carries."""
        of_it = [one for one in self.placeholders if one.knob is not None and one.knob.name == name]
        stated = {one.stands_for for one in of_it if one.is_switch}
        if value is not None and stated and value not in stated and all(one.is_switch for one in of_it):
            return False
        return all(one.word({name: value}) is not None for one in of_it)

    def filled(self, values: Mapping[str, Value], output_dir: str | PathLike[str]) -> list[str]:
        """Return the command's words for `values` by knob name.

        Raises `ValueError` for a value that cannot be said; see `can_say`.
        """
        for name in self.knobs:
            if not self.can_say(name, values[name]):
                raise ValueError(f"the command cannot be given {name} {values[name]!r}: {self.text}")
        return self._filled(values, lambda _: fspath(output_dir))

    def line(self, values: Mapping[str, Value]) -> str:
        """Return the command for `values` as a person types it; its outputs go where they go today."""
        return shlex.join(self._filled(values, lambda folder: folder.today or "OUTPUT_DIR"))

    def _filled(self, values: Mapping[str, Value], folder: Callable[[Placeholder], str]) -> list[str]:
        filled = (_filled(word, values, folder) for word in self.words)
        return [word for word in filled if word is not None]


def names_a_knob(word: str) -> bool:
    """Return whether a word that a person typed has a placeholder in it: text in braces need not be one."""
    known = {OUTPUT_DIR, *(name for one in KNOBS for name in (one.name, one.alias, *one.switches))}
    return any(found[3] in known and not (found[1] and found[6]) for found in _PLACEHOLDER.finditer(word))


def literal(text: str) -> str:
    """Return `text` as it is written where it is no placeholder."""
    return _PLACEHOLDER.sub(lambda found: f"{{{found[0]}}}", text)


def _filled(word: Word, values: Mapping[str, Value], folder: Callable[[Placeholder], str]) -> str | None:
    text = ""
    for part in word:
        if isinstance(part, str):
            text += part
        elif part.is_flag:
            if part.word(values) != ON_OFF[True]:
                return None
            text = text or f"--{part.name}"
        else:
            text += folder(part) if part.knob is None else part.word(values) or ""
    return text


def _parts(word: str) -> Word:
    """Return the texts and placeholders of one word. Raises `TargetError`."""
    parts: list[str | Placeholder] = []
    end, text = 0, ""
    for found in _PLACEHOLDER.finditer(word):
        before, whole, name, format_name, today, after = found.groups()
        text += word[end : found.start()]
        end = found.end()
        if before and after:  # doubled braces
            text += found[0][1:-1]
            continue
        text += before
        parts += [text] * bool(text)
        parts.append(Placeholder.parse(whole, name, format_name, today))
        text = after
    text += word[end:]
    return (*parts, text) if text or not parts else tuple(parts)


def _owner(text: str, name: str) -> tuple[Knob, str | None]:
    """Return the knob that a placeholder names, and the name of the switch if it is one. Raises `TargetError`."""
    for one in KNOBS:
        if name in one.switches:
            return one, name
    try:
        return knob(name), None
    except KeyError:
        known = [OUTPUT_DIR, *(one.name for one in KNOBS), *(name for one in KNOBS for name in one.switches)]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean {{{near[0]}}}?" if near else f"There are {', '.join(known)}."
        raise TargetError(
            f"{text} in the command is no knob. {hint} Write {literal(text)} where the command itself has braces."
        ) from None


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


def _switches(owner: Knob) -> str:
    if not owner.switches:
        return f"Write the argument that takes it, such as --{owner.name.replace('_', '-')} {{{owner.name}}}."
    return f"Write {' or '.join(f'{{{name}:{FLAG}}}' for name in owner.switches)}."


def _quoted(word: str) -> str:
    """Return `word` quoted as a shell needs it: most placeholders need nothing."""
    bare = _PLACEHOLDER.sub(lambda found: found[1] + found[2][1:-1] + found[6], word)
    return word if shlex.quote(bare) == bare and not ("{" in word and "," in word) else shlex.quote(word)
