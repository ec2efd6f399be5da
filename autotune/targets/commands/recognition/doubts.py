"""Sentences about arguments that were left alone: they may mean a knob, or be mistyped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from autotune.knobs.base import Knob
from autotune.targets.commands.argument_meaning import Meaning
from autotune.targets.commands.placeholder import NEAR_NAME_RATIO
from autotune.targets.commands.script.declared_arguments import Argument


def doubt(option: str, meaning: Meaning, *, is_flag: bool, certain: Sequence[str] = ()) -> str:
    """Return a sentence that an argument may be a knob, with the corrections that would make it one.

    `certain`: arguments that are that knob without doubt.
    """
    assert meaning.knob is not None, "only knobs are doubtful"
    if certain and meaning.is_of_step:
        return f"{option} is left alone: the micro-batch is {certain[0]}, so this is probably the global batch"
    names = switches(meaning.knob)
    if is_flag and not names:
        return valueless(option, meaning)
    return f"{option} is left alone: it may be {meaning.knob.name}; if so, say " + _ways(
        option, names if is_flag else (meaning.knob.name, *names)
    )


def valueless(option: str, meaning: Meaning, argument: Argument | None = None) -> str:
    """Return a sentence that a flag takes no value, with the values that it may switch; or that a value is missing.

    `argument` is the script's, if that is known.
    """
    if argument is not None and not argument.is_flag:
        return (
            f"{option} is left alone: there is no value after it; type its present value to have {meaning.name} tuned"
        )
    names = switches(meaning.knob) if meaning.knob else ()
    return f"{option} takes no value, so it cannot be {meaning.name}" + (
        f"; say {_ways(option, names)}" if names else ""
    )


def unread(name: str, file: str) -> str:
    """Return a sentence that an argument is not tuned, because today's value is unknown; `file`, if any, may set it."""
    reason = f"{file} may say what it is today" if file else "what it is today cannot be read from the script"
    return f"{name} of the script is left alone: {reason}; type it with that value to have it tuned"


def unplaced(name: str) -> str:
    """Return a sentence that an argument is not tuned: it may belong before the subcommand, or to another one."""
    return (
        f"{name} of the script is left alone: the script has subcommands, and where it belongs cannot be read; type it "
        f"with its value of today to have it tuned"
    )


def _ways(option: str, names: Sequence[str]) -> str:
    return " or ".join(f"--map {name}={option}" for name in names)


def switches(knob: Knob) -> tuple[str, ...]:
    """Return the names that a correction can use for a flag: the shortest switch name of each value."""
    shortest: dict[Any, str] = {}
    for name, value in knob.value_names.items():
        shortest.setdefault(value, name)
    return tuple(shortest.values())


def mistyped(options: Iterable[str], declared: Collection[str], of_script: Collection[str]) -> dict[str, str]:
    """Return the options that are not declared, each with the similar one that the script declares."""
    unknown = (option for option in options if option.startswith("--") and option not in declared)
    return {
        option: near[0]
        for option in unknown
        if not any(name.startswith(option) for name in declared)  # argparse accepts the beginning of a name
        and (near := get_close_matches(option, of_script, n=1, cutoff=NEAR_NAME_RATIO))
    }
