"""Turns the words that a person typed into a target: its text for the study, and remarks on recognised arguments."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import TargetError
from autotune.targets.commands.command import Command, is_command
from autotune.targets.commands.placeholder import unfinished
from autotune.targets.commands.recognition.recognise import recognise
from autotune.targets.commands.script.trains_when_run import trains_when_run


@dataclass(frozen=True, kw_only=True)
class TypedTarget:
    """A target as a study records it."""

    text: str
    remarks: tuple[str, ...] = ()  # sentences about recognised arguments, and about those left alone


def typed_target(
    words: Sequence[str], corrections: Mapping[str, str], *, is_typed_command: bool, options: Collection[str] = ()
) -> TypedTarget:
    """Return the target that `words` name: a file, a module, or a command.

    A file that trains when it is run becomes the command that runs it. `options` are autotune's own, which may have
    been typed after the command by mistake. Raises `TargetError`.
    """
    if is_typed_command:
        return _of_command(words, corrections, (), options)
    text = words[0] if words else ""
    if is_command(text):
        return _of_command(Command.split(text), corrections, ())
    if len(words) > 1:
        raise TargetError(
            f"{shlex.join(words)} is more than one target. It is probably a command. Write `--` before it: "
            f"-- {shlex.join(words)}."
        )
    if text.endswith(".py") and trains_when_run(Path(text)):
        said = f"{text} trains when it is run: taken as the command `{shlex.join(('python', text))}`"
        return _of_command(("python", text), corrections, (said,))
    if corrections:
        raise TargetError(
            f"--map says what the arguments of a command are, and {text} is none. It was probably left over. Leave it "
            f"out, or write the command: -- python {shlex.quote(text)}."
        )
    return TypedTarget(text=text)


def _of_command(
    words: Sequence[str], corrections: Mapping[str, str], before: tuple[str, ...], options: Collection[str] = ()
) -> TypedTarget:
    found = recognise(words, corrections)
    taken = [f"{shown}: taken for {name}" for shown, name in found.taken]
    taken += [f"{one} is no argument of the script (did you mean {near}?)" for one, near in found.mistyped.items()]
    if not found.command.knobs:
        before = (
            *before,
            "No argument of the command was recognised as a knob; what can be set from outside of it, or in "
            "TrainingArguments that it makes, is tuned",
        )
        if found.file:
            before = (
                *before,
                f"{found.file} may say more; type what is to be tuned as an argument, with its value there",
            )
    misplaced = [
        f"{word} stands behind `--` and is given to the script, which has no such option; options of autotune stand "
        f"before `--`"
        for word in (word.partition("=")[0] for word in words)
        if word in options and (word not in found.declared if found.declared else is_unnamed(word, words))
    ]
    broken = filter(None, map(unfinished, words))
    return TypedTarget(text=found.command.text, remarks=(*before, *taken, *found.left, *misplaced, *broken))


def is_unnamed(option: str, words: Sequence[str]) -> bool:
    """Return whether an option of several words occurs nowhere in the script, whose own options are unknown.

    False for an option of a single word (`--seed`), which a library that the script calls may read.
    """
    texts = [
        Path(word).read_text("utf-8", "replace")
        for word in words
        if Path(word).suffix == ".py" and Path(word).is_file()
    ]
    name = option.strip("-")
    return (
        "-" in name and bool(texts) and not any(one in text for text in texts for one in (name, name.replace("-", "_")))
    )
