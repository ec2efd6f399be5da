"""A command with placeholders for knobs: `-- python train.py --batch-size {batch_size=64} {bf16:flag}`.

{batch_size}          the knob's value
{batch_size=64}       the same; the command says 64 today, which is the baseline
{amp_dtype:short}     in the words of a format: bf16, fp16, fp32; see `Knob.formats`
{amp_dtype:a/b/c}     in words of one's own, in the order of the knob's values: bfloat16, float16, None; or true, false
{bf16:true/false}     a switch: whether the knob has this value; see `Knob.value_names`
--amp{bf16:flag}      the word before it is there or not; `{bf16:flag}` alone is `--bf16`
--no-amp{bf16:noflag} the word before it is there where the value is not
--amp{amp:flag}       the word before it is there if there is any value but None; another placeholder says which
{attn:sdpa/flash}     a knob of the user's own with its values, the first of which is today's without a `=`
{output_dir=runs}     a scratch folder of the probe
{{name}}              `{name}` itself
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike, fspath
from pathlib import Path
from typing import Self

from autotune.core.records import Declaration, Value
from autotune.errors import TargetError
from autotune.knobs import OURS
from autotune.knobs.base import Knob
from autotune.knobs.declared import DeclaredKnob
from autotune.targets.commands.argument_meaning import meaning_of
from autotune.targets.commands.distributed import LAUNCHER_NAMES, PYTHON
from autotune.targets.commands.placeholder import (
    ON_OFF,
    PLACEHOLDER,
    Placeholder,
    literal,
    too_many_values,
)
from autotune.targets.commands.script.argument_names import normal

ACCUMULATION = "gradient_accumulation_steps"
PREFIX = "-- "  # begins the text of a target that is a command
NO_COMMAND = "There is no command after `--`. Type it as you run it: -- python train.py --epochs 3."


def is_command(text: str) -> bool:
    """Return whether a target's text is a command."""
    return text == PREFIX.strip() or text.startswith(PREFIX)


Word = tuple[str | Placeholder, ...]


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command: its words, with placeholders for the values of knobs."""

    words: tuple[Word, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the command of a target's text, which is quoted as in a shell. Raises `TargetError`."""
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
            raise TargetError(NO_COMMAND)
        found = cls(words=tuple(_parts(word) for word in words))
        for one in found.placeholders:
            beside = (other for other in found.placeholders if other.knob is one.knob)
            if one.is_gate and one.knob is not None and all(other.is_gate for other in beside):
                raise too_many_values(one.text, one.knob)
        found.baseline  # noqa: B018  # raises if words contradict each other
        return found

    @property
    def text(self) -> str:
        """The target's text, which `parse` reads."""
        return PREFIX + " ".join(
            _quoted("".join(part.text if isinstance(part, Placeholder) else literal(part) for part in word))
            for word in self.words
        )

    @property
    def label(self) -> str:
        """The name of the command in messages: the file or the module that it runs, or its first word."""
        words = [part for word in self.words for part in word if isinstance(part, str)]
        modules = [behind for word, behind in pairwise(words) if word == "-m" and behind not in LAUNCHER_NAMES]
        files = [word for word in words if word.endswith(".py")]
        programs = [word for word in words if not PYTHON.match(Path(word).name) and not word.startswith("-")]
        return Path([*modules, *files, *programs, *words, "the command"][0]).name

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        """All placeholders, from left to right."""
        return tuple(part for word in self.words for part in word if isinstance(part, Placeholder))

    @property
    def knobs(self) -> tuple[str, ...]:
        """The names of the knobs that the command carries, in the order of the registry."""
        carried = {one.knob.name for one in self.placeholders if one.knob is not None}
        own = (one.name for one in self.declared)
        return (*(one.name for one in OURS if one.name in carried), *own)

    @property
    def declared(self) -> tuple[Declaration, ...]:
        """The knobs of the user's own that it carries."""
        found = (one.knob.declared for one in self.placeholders if isinstance(one.knob, DeclaredKnob))
        return tuple({one.name: one for one in found}.values())

    @property
    def derives_accumulation(self) -> bool:
        """Whether it sets a micro-batch and a global batch, from which its script derives the accumulation."""
        says_both = "batch_size" in self.knobs and any(one and one.is_of_step for one in map(meaning_of, self._options))
        return says_both and ACCUMULATION not in self.knobs

    def says(self, option: str) -> bool:
        """Return whether it has an argument of that name, with `-` or `_`."""
        return option in map(normal, self._options)

    def lacks_use_cpu(self, knob: Knob) -> bool:
        """Return whether it switches bf16 by this knob without `--use_cpu`: without a GPU, transformers refuses it."""
        asks = any(one.knob is knob and one.name == "bf16" for one in self.placeholders)
        return asks and not self.says("use_cpu")

    @property
    def takes_output_dir(self) -> bool:
        """Whether the output of a probe can be sent to a folder of its own."""
        return any(one.knob is None for one in self.placeholders)

    @property
    def lacks_output_dir(self) -> bool:
        """Whether today's output folder is unknown: the recommended command then has OUTPUT_DIR in its place."""
        return any(one.knob is None and not one.today for one in self.placeholders)

    @property
    def baseline(self) -> dict[str, Value]:
        """The values that the command has today, by knob name. Raises `TargetError` if words contradict each other."""
        said: dict[str, Value] = {}
        for one in self.placeholders:
            if one.knob is None or one.today is None or one.is_gate:
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
        for one in self.placeholders:
            if one.is_gate and one.knob is not None and one.today == ON_OFF[one.is_negated]:
                said[one.knob.name] = None
        return said

    @property
    def _options(self) -> list[str]:
        return [word[0].partition("=")[0] for word in self.words if isinstance(word[0], str)]

    def can_take(self, name: str, value: Value) -> bool:
        """Return whether the command can carry this value of one of its knobs."""
        of_it = [one for one in self.placeholders if one.knob is not None and one.knob.name == name]
        stated = {one.stands_for for one in of_it if one.is_switch}
        if value is not None and stated and value not in stated and all(one.is_switch for one in of_it):
            return False
        return all(one.word({name: value}) is not None for one in of_it)

    def filled(self, values: Mapping[str, Value], output_dir: str | PathLike[str]) -> list[str]:
        """Return the command's words for `values` by knob name.

        Raises `ValueError` for a value that cannot be written; see `can_take`.
        """
        for name in self.knobs:
            if not self.can_take(name, values[name]):
                raise ValueError(f"the command cannot be given {name} {values[name]!r}: {self.text}")
        return self._filled(values, lambda _: fspath(output_dir))

    def present(self) -> list[str]:
        """Return the command's words without a configuration: knobs have their values of today or their defaults."""
        values = {one.knob.name: one.knob.default for one in self.placeholders if one.knob} | self.baseline
        return [word for word in (_filled(word, values, lambda _: "") for word in self.words) if word is not None]

    def recommended(self, values: Mapping[str, Value]) -> list[str]:
        """Return the command's words for `values` as a person types them, with the output folder of today."""
        return self._filled(values, lambda folder: folder.today or "OUTPUT_DIR")

    def _filled(self, values: Mapping[str, Value], folder: Callable[[Placeholder], str]) -> list[str]:
        filled = (_filled(word, values, folder) for word in self.words)
        return [word for word in filled if word is not None]


def _filled(word: Word, values: Mapping[str, Value], folder: Callable[[Placeholder], str]) -> str | None:
    text = ""
    for part in word:
        if isinstance(part, str):
            text += part
        elif part.is_flag:
            if part.word(values) != ON_OFF[True]:
                return None
            text = text or f"--{'no-' * part.is_negated}{part.name}"
        else:
            text += folder(part) if part.knob is None else part.word(values) or ""
    return text


def _parts(word: str) -> Word:
    """Return the texts and placeholders of one word. Raises `TargetError`."""
    parts: list[str | Placeholder] = []
    end, text = 0, ""
    for found in PLACEHOLDER.finditer(word):
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


def _quoted(word: str) -> str:
    """Return `word` quoted as a shell needs it: most placeholders need nothing."""
    bare = PLACEHOLDER.sub(lambda found: found[1] + found[2][1:-1] + found[6], word)
    return word if shlex.quote(bare) == bare and not ("{" in word and "," in word) else shlex.quote(word)
