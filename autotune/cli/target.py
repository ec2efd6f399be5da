"""The target of a command (a file, a module, or everything after `--`), and arguments that several commands have."""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from autotune.cli.options import given_by, parameter_of
from autotune.cli.wrong_words import unknown_to_functions, usage_error
from autotune.errors import UsageError

TARGET = "Your training code: model.py, pkg.train, model.py:function, or the command that trains, behind `--`."
# Similarity (difflib) from which an argument is an option of autotune, and not one of a script like `--batch-size`.
MISTYPED = 0.85
MOST_LISTED_OPTIONS = 12  # in a message
PAIR_OPTIONS = {"--fix", "--baseline", "--config", "--map"}  # of `name=value,...`, which may be repeated
Words = Annotated[list[str] | None, typer.Argument(help=TARGET, metavar="TARGET | -- COMMAND ARGUMENT...")]
Map = Annotated[
    str | None,
    typer.Option(
        "--map",
        envvar="AUTOTUNE_MAP",
        help="Which arguments of a command are which knobs: batch=--train_bs,bf16=--amp; workers=no for none.",
    ),
]
CommandArgument = Annotated[
    str | None,
    typer.Option(
        "--command",
        envvar="AUTOTUNE_COMMAND",
        help="The command that trains, where no target is named: for autotune.toml.",
    ),
]
StudyArgument = Annotated[str | None, typer.Argument(help="Folder or name of a study. [default: the newest]")]
GlobalBatch = Annotated[
    int | None,
    typer.Option(
        "--global-batch",
        min=1,
        help="The answer for this global batch (samples per optimizer step). [default: the recommended one]",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
DeviceOption = Annotated[str | None, parameter_of("device")]
RanksOption = Annotated[int | None, parameter_of("ranks")]
DevicesOption = Annotated[str | None, parameter_of("devices")]


class OneOfEach(TyperCommand):
    """A command that takes each option once, unless it is repeatable, or takes `name=value`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the typed words; return those left. Raises `UsageError` for a repetition: only the last would count."""
        end = args.index("--") if "--" in args else len(args)
        ours = args[:end]
        for one in self.get_params(ctx):
            takes_one = one.param_type_name == "option" and not (one.multiple or getattr(one, "is_flag", False))
            given = [word for word in ours if word in one.opts or word.partition("=")[0] in one.opts]
            if not takes_one or len(given) < 2:
                continue
            if not PAIR_OPTIONS.intersection(one.opts):
                raise UsageError(
                    f"{given[0]} is given {len(given)} times, and only the last would count. An earlier line was "
                    f"probably edited. Write it once; what takes several values has commas between them."
                )
            ours = _as_one(ours, one.opts)
        try:
            return super().parse_args(ctx, [*ours, *args[end:]])
        except Exception as error:
            if type(error).__name__ == "NoSuchOption":
                raise self.unknown(ctx, getattr(error, "option_name", ""), args) from error
            raise usage_error(error, ctx, ours) or error from error

    def unknown(self, ctx: Any, typed_option: str, words: list[str]) -> UsageError:
        """Return the error that says which option was probably meant by `typed_option`, or which ones there are."""
        flags = self._flags(ctx)
        meant = near(typed_option, flags) or [one for one in flags if one.endswith(typed_option.removeprefix("-"))]
        there = (
            f"There are {', '.join(flags)}."
            if len(flags) <= MOST_LISTED_OPTIONS
            else f"`autotune {ctx.info_name} --help` lists them."
        )
        return UsageError(
            f"autotune {ctx.info_name} has no option {typed_option}. It was probably mistyped. "
            + (f"Did you mean {' or '.join(meant)}?" if meant else there)
        )

    def _flags(self, ctx: Any) -> list[str]:
        return [flag for one in self.get_params(ctx) for flag in one.opts if flag.startswith("--")]


def near(typed_option: str, flags: Sequence[str]) -> list[str]:
    """Return the option of which `typed_option` is probably a misspelling, if there is one."""
    return difflib.get_close_matches(typed_option, flags, n=1, cutoff=MISTYPED)


def _as_one(words: list[str], names: Sequence[str]) -> list[str]:
    """Return the words with all values of an option after its first place, with commas between them."""
    values, others, place, rest = list[str](), list[str](), len(words), iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name not in names:
            others.append(word)
            continue
        place = min(place, len(others))
        values.append(value if equals else next(rest, ""))
    return [*others[:place], names[0], ",".join(values), *others[place:]]


class CommandWithScript(OneOfEach):
    """A command with many options below headings, whose errors explain where the arguments of a script go."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, each below its heading; typer itself does so only in its boxes."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for one in self.get_params(ctx):
            usual = "Arguments" if one.param_type_name == "argument" else "Options"
            if record := one.get_help_record(ctx):
                panels.setdefault(getattr(one, "rich_help_panel", None) or usual, []).append(record)
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def unknown(self, ctx: Any, typed_option: str, words: list[str]) -> UsageError:
        """Return the error; an unfamiliar option after a script or a command is probably an argument of that."""
        from autotune.cli.forgotten_dashes import with_dashes

        told = super().unknown(ctx, typed_option, words)
        if meant := unknown_to_functions(typed_option, words, ctx):
            is_known = "Did you mean" in str(told)
            return told if is_known else UsageError(f"autotune {ctx.info_name} has no option {typed_option}. {meant}")
        line = "" if "--" in words else with_dashes(ctx.info_name, self.get_params(ctx), words)
        command = shlex.split(line.partition(" -- ")[2])
        is_script = command[:1] == ["python"] and "python" not in words
        if not line or (is_script and near(typed_option, self._flags(ctx))):
            return told
        where, put = ("the command that trains", "Put `--` before that")
        if is_script:
            where, put = command[1], "Arguments of your script go behind `--`"
        return UsageError(
            f"autotune {ctx.info_name} has no option {typed_option}. It is probably an argument of {where}. {put}: "
            f"{line}"
        )


def target_text(
    context: typer.Context, words: list[str] | None, command: str | None, mapped: str | None, *, quiet: bool = False
) -> str:
    """Return the target as a study records it, and say on standard error what was recognised in a command.

    Raises `UsageError` without a target, and `TargetError` for a command that cannot be watched.
    """
    from autotune.cli.forgotten_dashes import with_dashes
    from autotune.cli.output import say
    from autotune.targets.commands.command import PREFIX
    from autotune.targets.commands.recognition.typed_target import typed_target

    if not words and not command:
        raise UsageError(
            f"There is no target. It names the code that trains. Write autotune {context.info_name} model.py, or "
            f"autotune {context.info_name} -- python train.py --batch-size 64."
        )
    if words and command and given_by(context, "command") == "COMMANDLINE":
        raise UsageError(
            f"Two targets are named: {shlex.join(words)}, and --command {shlex.quote(command)}. One of them was "
            f"probably left over from an earlier line. Leave it out."
        )
    is_dashed = "--" in sys.argv
    is_several = words is not None and len(words) > 1 and not is_dashed
    if is_several and (line := with_dashes(context.info_name or "", context.command.params, sys.argv[2:])):
        raise UsageError(
            f"{shlex.join(words or ())} is more than one target. It is probably the command that trains. Put `--` "
            f"before it: {line}"
        )
    if words:
        own = {one for parameter in context.command.params for one in parameter.opts}
        typed = typed_target(words, _pairs(mapped), is_typed_command=is_dashed, options=own)
    else:
        typed = typed_target([f"{PREFIX}{command}"], _pairs(mapped), is_typed_command=False)
    for remark in () if quiet else typed.remarks:
        say(f"{remark}.", stderr=True)
    return typed.text


def _pairs(mapped: str | None) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in mapped.split(",")] if mapped else []
    for name, equals, value in pairs:
        if not (name and equals and value):
            unknown = f"there is no knob {name!r}. {heading}" if (heading := _unknown_heading(name.strip())) else ""
            raise UsageError(
                f"--map {mapped}: "
                + (unknown or f"{name!r} has no argument. It was probably mistyped.")
                + " Write knob=argument: --map batch=--train_bs,workers=--j."
            )
    return {name.strip(): value.strip() for name, _, value in pairs}


def _unknown_heading(name: str) -> str:
    """Return which knobs a heading of a column stands for, in sentences; empty for the name of a knob."""
    from autotune.knobs.parsing import heading_hint
    from autotune.targets.commands.placeholder import owner_of

    return "" if owner_of(name) else heading_hint(name)


def resume_line(words: list[str]) -> str:
    """Return the line that resumes, from the words of this call: the option is before a command."""
    kept = [word for word in words if word not in ("--fresh", "--resume")]
    end = kept.index("--") if "--" in kept else len(kept)
    return shlex.join(["autotune", *kept[:end], "--resume", *kept[end:]])


def without_password(words: list[str], storage: str | None) -> list[str]:
    """Return the words of this call as they may be printed: the address of a database without its password."""
    if storage is None:
        return words
    from autotune.fleet.address import printable_address

    return [
        printable_address(storage) if word == storage else word.replace(storage, printable_address(storage))
        for word in words
    ]
