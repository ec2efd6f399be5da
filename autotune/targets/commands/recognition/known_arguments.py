"""What is known of the arguments that a command could have: which knobs they mean, and whether others may exist."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autotune.errors import TargetError
from autotune.targets.commands.argument_meaning import meaning_of
from autotune.targets.commands.command import Command
from autotune.targets.commands.recognition.grammars import grammar_of
from autotune.targets.commands.recognition.shell import program_of, script_of
from autotune.targets.commands.script.declared_arguments import read_script


@dataclass(frozen=True, kw_only=True)
class KnownArguments:
    """The names of knobs that arguments of one command mean or may mean."""

    had: frozenset[str] = frozenset()  # by an argument that is typed, or that the script has; recognition says more
    could_have: frozenset[str] | None = None  # by another argument, once it is typed; None: by any, not all are known


def known_arguments(command: Command) -> KnownArguments:
    """Return what the words of the command and its script tell; the script is read from its file, not run."""
    words = command.present()
    try:
        program = program_of(words)
    except TargetError:  # the file is not here
        return KnownArguments()
    script = read_script(script_of(program)).of_subcommand(words)
    grammar = grammar_of(script, program.label.removesuffix(".py"))
    declared = {name for one in (*grammar.arguments, *script.arguments) for name in one.words}
    typed = {word.partition("=")[0] for word in program.arguments if word.startswith("-")}
    is_read = bool(script.arguments) and not grammar.known and typed <= declared
    return KnownArguments(
        had=_knobs(declared | typed), could_have=_knobs(grammar.if_typed) if grammar.if_typed or is_read else None
    )


def _knobs(options: Iterable[str]) -> frozenset[str]:
    return frozenset(found.owner for found in map(meaning_of, options) if found is not None)
