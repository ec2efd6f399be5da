"""Words of a command line that the parser refuses, as errors of three sentences: what was given, why, what is right."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

from autotune.cli.options import MISTYPED
from autotune.errors import UsageError
from autotune.knobs import KNOBS

WHOLE_NUMBER = 2  # as an example, where an option has no default
NEAR_KNOB = 0.75  # from which the name of a knob was
NEAR_COMMAND = 0.6  # similarity (difflib) from which a command was probably meant


class Commands(TyperGroup):
    """The tree of commands, which names the one that was probably meant by a wrong word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words before the command; return those left. Raises `UsageError` for a wrong one."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            raise usage_error(error, ctx, args) or error from error

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of the command, the command, and its words. Raises `UsageError` if there is none."""
        if args[0] in self.commands:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(args[0], self.commands, n=1, cutoff=NEAR_COMMAND)
        if args[0].endswith(".py"):
            meant = f"Write autotune search {shlex.quote(args[0])}."
        else:
            meant = f"Did you mean autotune {near[0]}?" if near else "`autotune --help` lists the commands."
        raise UsageError(f"autotune has no command {args[0]}. {MISTYPED} {meant}")


def usage_error(error: Exception, ctx: Any, words: Sequence[str]) -> UsageError | None:
    """Return what an error of the parser means; None for any other error.

    By the names of their classes: typer has used click, and now has a copy of it.
    """
    one, name = getattr(error, "param", None), str(getattr(error, "option_name", ""))
    usage = " ".join([ctx.command_path, *ctx.command.collect_usage_pieces(ctx)]).translate(str.maketrans("", "", "{}"))
    shown = f"`{ctx.command_path} --help` shows how it is written."
    match type(error).__name__:
        case "BadParameter" if one is not None:
            return _wrong_value(str(getattr(error, "message", "")), one, ctx, words, shown)
        case "MissingParameter" if one is not None:
            article = "" if one.name.endswith("s") or len(one.name) == 1 else "a "  # contestants, and compare's a and b
            is_option = one.opts[0].startswith("-")
            right = f"Add {one.opts[0]} {one.metavar or one.name.upper()}" if is_option else f"Write {usage}"
            return UsageError(
                f"{ctx.command_path} needs {article}{one.name}, and none is given. It was probably left out. "
                f"{right}. {shown}"
            )
        case "NoSuchOption":
            return UsageError(f"{ctx.command_path} has no option {name}. {MISTYPED} {shown}")
        case "BadOptionUsage" if "does not take" in str(error):
            return UsageError(f"{name} takes no value, and it was given one. {MISTYPED} Write {name} alone.")
        case "BadOptionUsage":
            known = next((one for one in ctx.command.params if name in one.opts), None)
            right = f"It is: {known.help} " if known is not None and known.help else ""
            return UsageError(f"{name} needs a value, and none follows it. It was probably left out. {right}{shown}")
        case "UsageError" | "BadArgumentUsage":
            return UsageError(f"{_too_many(str(error), ctx)} Write {usage}. {shown}")
    return None


def unknown_to_functions(option: str, words: Sequence[str], ctx: Any) -> str:
    """Return two sentences on what an unknown option of a command means beside a file of functions; empty without one.

    The setting of a knob is today's, so the baseline; another option is found by its help, as --study is by --folder.
    """
    from autotune.targets.commands.script.trains_when_run import takes_no_arguments

    file = next((word for word in words if word.endswith(".py") and takes_no_arguments(Path(word))), None)
    if file is None:
        return ""
    why = f"{file} is a file of functions, which is given no arguments."
    ours = {name: knob.alias for knob in KNOBS for name in (knob.name, knob.alias)}
    name = option.strip("-").replace("-", "_")
    if near := difflib.get_close_matches(name, ours, n=1, cutoff=NEAR_KNOB):
        at = next(at for at, word in enumerate(words) if word.partition("=")[0] == option)
        value = words[at].partition("=")[2] or next(
            (one for one in words[at + 1 : at + 2] if one[:1] not in "-"), "VALUE"
        )
        flags = {flag for one in ctx.command.params for flag in one.opts}
        line = f"{'' if '--baseline' in flags else 'autotune search '}--baseline {ours[near[0]]}={value}"
        return f"{why} If it is what you train with today, declare it: {line}"
    helped = (
        one.opts[0] for one in ctx.command.params if (getattr(one, "help", "") or "").lower().startswith(f"{name} ")
    )
    meant = next(helped, None)
    return f"{why} " + (f"Did you mean {meant}?" if meant else f"`{ctx.command_path} --help` lists autotune's options.")


def _too_many(message: str, ctx: Any) -> str:
    """Return two sentences on words that have no place; they are in brackets at the end of the parser's message."""
    found = re.search(r" \((.*)\)$", message)
    extra = found[1] if found else "so many words"
    why = "A word was probably left over."
    if "=" in extra:
        options = {flag for one in ctx.command.params for flag in one.opts}
        own = next((flag for flag in ("--config", "--fix") if flag in options), "")
        why = f"A setting was probably meant, {f'which goes behind {own}' if own else 'and it takes none'}."
    return f"{ctx.command_path} has no place for {extra}. {why}"


def _wrong_value(message: str, one: Any, ctx: Any, words: Sequence[str], shown: str) -> UsageError:
    given, whence = _given(one, ctx, words)
    flag = next((name for name in one.opts if name.startswith("--")), one.name)
    bound = message.removeprefix("Input should be ").rstrip(".")
    rule = f"cannot be used: {'' if bound == message.rstrip('.') else 'it must be '}{bound}"
    number = one.default if type(one.default) is int else WHOLE_NUMBER
    is_number = "integer" in message or type(one.default) is int
    right = f"Write a number, as in {flag} {number}. " if is_number else ""
    rule = "is not a whole number" if "integer" in message else rule
    return UsageError(f"{flag} {given} {rule}. {whence} {right}{shown}")


def _given(one: Any, ctx: Any, words: Sequence[str]) -> tuple[str, str]:
    """Return the text that was given for a parameter, and a sentence on where it comes from."""
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in one.opts:
            return value if equals else " ".join(words[at + 1 : at + 2]), MISTYPED
    if (text := one.resolve_envvar_value(ctx)) is not None:
        return text, f"It stands in the variable {one.envvar}."
    if (text := ctx.lookup_default(one.name)) is not None:
        return str(text), f"It stands in {ctx.obj}."
    return "", MISTYPED
