"""Recognises arguments of a command that are knobs, by their names; doubtful ones are reported and left alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.errors import TargetError
from autotune.knobs.observed import Observed
from autotune.targets.commands.argument_meaning import Meaning, meaning_of, meant
from autotune.targets.commands.command import Command
from autotune.targets.commands.placeholder import FLAG, NO_FLAG, OUTPUT_DIR, escaped, literal, names_a_knob
from autotune.targets.commands.program import Program
from autotune.targets.commands.recognition.config_files import config_file, launch_file
from autotune.targets.commands.recognition.doubts import doubt, mistyped, switches, unplaced, unread, valueless
from autotune.targets.commands.recognition.formats import format_of, gates
from autotune.targets.commands.recognition.given_arguments import Given, given
from autotune.targets.commands.recognition.grammars import Grammar, grammar_of
from autotune.targets.commands.recognition.shell import program_of, script_of
from autotune.targets.commands.recognition.unseen_flags import no_such_argument, unseen_flags
from autotune.targets.commands.script.argument_names import is_negative, normal
from autotune.targets.commands.script.declared_arguments import UNKNOWN, Argument, Script, read_script, with_globals

NOT_AN_ARGUMENT = "no"  # `--map workers=no`: that knob is no argument of this command
TRUTHS = ("true/false", "True/False", "TRUE/FALSE", "1/0", "yes/no", "on/off", "y/n", "t/f")


@dataclass(kw_only=True)
class Recognition:
    """A command whose knobs were recognised, and what was found about its other arguments."""

    command: Command
    taken: list[tuple[str, str]] = field(default_factory=list)  # (the argument as it is today, what it is taken for)
    left: list[str] = field(default_factory=list)  # sentences about arguments that were left alone
    declared: frozenset[str] = frozenset()  # all options that the script itself declares; none: they are not known
    mistyped: dict[str, str] = field(default_factory=dict)  # an option that is none of these, and the one that is meant
    file: str = ""  # a file that the command names and that may set arguments


def recognise(words: Sequence[str], corrections: Mapping[str, str] | None = None) -> Recognition:
    """Return the command of these words with placeholders for the knobs in it.

    `corrections`: knob, switch or `knob:format` to the argument that means it, or to `no`. A command that has
    placeholders already is taken as it is. Raises `TargetError`.
    """
    if any(names_a_knob(word) for word in words):
        if corrections:
            typed = ",".join(f"{name}={value}" for name, value in corrections.items())
            raise TargetError(
                f"The command has placeholders, and --map {typed} says what they are. Both were given. "
                f"Leave --map out, or type the command without placeholders."
            )
        command = Command.of(list(words))
        program_of(words)
        return Recognition(command=command)
    program = program_of(words)
    script = read_script(script_of(program)).of_subcommand(words)
    grammar = grammar_of(script, program.label.removesuffix(".py"))
    if grammar.reads_files:
        script = with_globals(script, [Path(word) for word in program.arguments if "=" not in word])
    if grammar.has_flags and corrections:
        declared = [word for one in (*grammar.arguments, *script.arguments) for word in one.words]
        known = {normal(word.partition("=")[0]) for word in (*words, *declared)}
        unseen = unseen_flags({name: meant(key) for key, name in corrections.items()}, known, script_of(program))
        script = replace(script, arguments=(*script.arguments, *unseen))
    return _Reader(list(words), program, script, grammar, dict(corrections or {})).read()


class _Reader:
    """One pass over the arguments of a command."""

    def __init__(
        self, words: list[str], program: Program, script: Script, grammar: Grammar, corrections: dict[str, str]
    ) -> None:
        self._words, self._grammar, launch = words, grammar, program.launch
        self._precisions, self._has_subcommands = script.precisions, script.has_subcommands
        self._of_launch = own = launch.distributed.arguments(script) if launch else ()
        self._declared = declared = {n: one for one in (*own, *grammar.arguments, *script.arguments) for n in one.words}
        self._script_at = launch.script_at - launch.is_module if launch else len(words)  # end of the launcher's options
        before = list(given(words[: self._script_at], 1, declared)) if launch else []
        named = {normal(name) for name in (*(word for one in own for word in one.words), *corrections.values())}
        self._given = [one for one in before if normal(one.option) in named]
        at = len(words) - len(program.arguments)
        self._given += given(words, at, declared)
        file = "" if grammar.reads_files else config_file(words, at, self._given)
        self._unread = dict.fromkeys(declared.values(), file)  # unknown defaults, with the files that may set them
        self._unread |= dict.fromkeys(own, launch_file(words, launch, before) if launch else "")
        self._alone = {meant(key).owner for key, value in corrections.items() if value == NOT_AN_ARGUMENT}
        self._corrections = {normal(name): meant(key) for key, name in corrections.items() if name != NOT_AN_ARGUMENT}
        self._mapped = {meaning.name for meaning in self._corrections.values()}
        self._gates = gates(set(declared.values()), {one.name: one.value for one in self._given})
        self._texts: dict[int, str | None] = {}  # new words by position; None: the word is removed
        self._added, self._added_before = list[str](), list[str]()  # behind the command; behind what launches it
        of_script = () if grammar.known else (name for one in script.arguments for name in one.words)
        self._result = Recognition(command=Command(words=()), declared=frozenset(of_script), file=file)
        self._result.mistyped = mistyped([one.option for one in self._given], declared, self._result.declared)
        self._check(corrections)

    def read(self) -> Recognition:
        """Recognise the typed arguments, then those that only the script declares."""
        by_knob = self._typed_ones()
        for argument in dict.fromkeys(self._declared.values()):
            self._offer(argument, by_knob)
        words = [self._texts.get(n, escaped(word)) for n, word in enumerate(self._words)]
        words = [*words[: self._script_at], *self._added_before, *words[self._script_at :], *self._added]
        self._result.command = Command.of([word for word in words if word is not None])
        return self._result

    def _typed_ones(self) -> dict[str, set[str]]:
        """Replace the values that are typed; return the names of arguments taken, by placeholder."""
        last = {one.name: one for one in self._given}  # if an argument is given twice, the last counts
        meanings = {name: self._meaning(name) for name in last}
        taken: dict[str, set[str]] = {}
        for name, one in last.items():
            meaning = meanings[name]
            if meaning is not None and meaning.is_doubtful:  # it gets a sentence instead
                self._result.mistyped.pop(one.option, None)
            if meaning is None or one.option in self._result.mistyped:
                continue
            rivals = [typed for typed, of in meanings.items() if of and not of.is_doubtful and of.name == meaning.name]
            rivals += [other for other in self._certain(meaning.name) if self._is_in_effect(other, meaning)]
            shown = one.option if one.value is None else f"{one.option} {one.value}"
            if meaning.is_doubtful:
                certain = [*rivals, *self._certain(meaning.name)]
                self._result.left.append(doubt(one.option, meaning, is_flag=one.value is None, certain=certain))
            elif len(rivals) > 1 and meaning.knob is not None:
                self._result.left.append(
                    f"{one.option} is left alone: {' and '.join(rivals)} may both be {meaning.name}; say which by "
                    f"--map {meaning.name}={name}"
                )
                taken.setdefault(meaning.name, set()).add(name)
            elif (text := self._placeholder(one, meaning)) is None:
                self._result.left.append(
                    valueless(one.option, meaning, self._declared.get(one.option) or self._declared.get(name))
                    if one.value is None
                    else f"{shown} is left alone: {one.value} is no value of {meaning.name}"
                )
                taken.setdefault(meaning.name, set()).add(name)
            else:
                argument = self._declared.get(one.option)
                if argument is not None and argument.off and meaning.is_truth:  # absent, it would mean its default
                    self._texts[one.at] = _pair(argument, meaning, is_on=one.option != argument.off)
                else:
                    self._put(one, text)
                self._result.taken.append((shown, meaning.owner))
                taken.setdefault(meaning.name, set()).add(name)
        return taken

    def _offer(self, argument: Argument, taken: dict[str, set[str]]) -> None:
        """Add an argument that the script declares and the command does not contain, with its default."""
        if any(argument is self._declared.get(one.name) for one in self._given) or "--" in self._words:
            return
        if argument in self._of_launch and argument.default is UNKNOWN:
            return
        meaning = self._meaning(argument.name)
        if meaning is None or meaning.name in taken or self._says_otherwise(meaning, taken):
            return
        if meaning.is_doubtful:
            if meaning.knob is not None and taken.keys().isdisjoint((meaning.knob.name, *meaning.knob.value_names)):
                certain = self._certain(meaning.name)
                self._result.left.append(doubt(argument.name, meaning, is_flag=argument.is_flag, certain=certain))
            return
        rivals = self._certain(meaning.name)
        taken[meaning.name] = set(rivals)
        if len(rivals) > 1:
            self._result.left.append(
                f"{' and '.join(rivals)} of the script may both be {meaning.name}; say which by "
                f"--map {meaning.name}={rivals[0]}"
            )
            return
        if self._has_subcommands and not argument.subcommand and argument not in self._of_launch:
            if meaning.knob is not None:
                self._result.left.append(unplaced(argument.name))
            return
        words = self._written(argument, meaning)
        if words is None:
            if meaning.knob is not None:
                self._result.left.append(
                    valueless(argument.name, meaning)
                    if argument.is_flag and not meaning.is_truth
                    else unread(argument.name, self._unread[argument])
                )
            return
        (self._added_before if argument in self._of_launch else self._added).extend(words)
        self._result.taken.append((f"{argument.name}, by default {_shown(argument.default)}", meaning.owner))

    def _is_in_effect(self, name: str, meaning: Meaning) -> bool:
        """Return whether an argument of the script is not typed, and has a default that would be tuned."""
        typed = [self._declared.get(one.name) for one in self._given]
        return self._declared[name] not in typed and self._written(self._declared[name], meaning) is not None

    def _certain(self, name: str) -> list[str]:
        meanings = {one.name: self._meaning(one.name) for one in dict.fromkeys(self._declared.values())}
        return [one for one, its in meanings.items() if its and its.name == name and not its.is_doubtful]

    def _says_otherwise(self, meaning: Meaning, taken: dict[str, set[str]]) -> bool:
        """Return whether a precision is already set by name, so that a switch would set it a second time."""
        if meaning.knob is None:
            return False
        names = (meaning.knob.name,) if meaning.is_switch else meaning.knob.value_names
        return not taken.keys().isdisjoint(names)

    def _written(self, argument: Argument, meaning: Meaning) -> list[str] | None:
        """Return the words for an argument at its default; None: the default cannot be read or written."""
        default, name = argument.default, literal(argument.name)
        if default is UNKNOWN or default is None or self._unread[argument]:
            return None
        if meaning.is_truth and isinstance(default, bool):
            if argument.off:
                return [_pair(argument, meaning, is_on=default)]
            if argument.is_flag:
                return [f"{name}{_flag(meaning, is_there=default is not argument.is_negated)}"]
            default = next(iter(self._grammar.truth.split("/")[not default :]))
        one = Given(option=argument.name, name=argument.name, value=str(default), at=0, inline=True)
        text = self._placeholder(one, meaning)
        return None if text is None else [word.format(option=name, value=text) for word in self._grammar.written]

    def _placeholder(self, one: Given, meaning: Meaning) -> str | None:
        """Return the placeholder for an argument's value; None if this is no value of its knob."""
        value = one.value
        if meaning.knob is None:
            return f"{{{OUTPUT_DIR}={value}}}" if value and not set("{}") & set(value) else None
        if meaning.is_truth:
            if value is None:
                return _flag(meaning, is_there=True)
            pair = None if meaning.is_negated else next((one for one in TRUTHS if value in one.split("/")), None)
            return pair and f"{{{meaning.name}:{pair}={value}}}"
        if value is None:
            return None
        if meaning.knob.formats:
            argument, is_gated = self._declared.get(one.name), one.name in self._gates.values()
            chosen = meaning.format or format_of(argument, one.name, meaning.knob, value, is_gated=is_gated)
            return chosen and f"{{{meaning.name}:{chosen}={value}}}"
        try:
            meaning.knob.parse(value)
        except ValueError:
            return None
        return f"{{{meaning.name}={value}}}"

    def _put(self, one: Given, text: str) -> None:
        if one.value is None:
            self._texts[one.at] = f"{literal(self._words[one.at])}{text}"
        elif one.inline:
            self._texts[one.at] = f"{literal(self._words[one.at].removesuffix(one.value))}{text}"
        else:
            self._texts[one.at + 1] = text

    def _meaning(self, name: str) -> Meaning | None:
        """Return what an argument of this name means; None: nothing that is known."""
        argument = self._declared.get(name)
        if normal(name) in self._corrections:
            return replace(self._corrections[normal(name)], is_negated=_is_negated(name, argument))
        found = meaning_of(name)
        if found is None or found.name in self._mapped or found.owner in self._alone:
            return None
        if self._mapped & {*(found.knob.value_names if found.knob else ())}:
            return None
        if argument is not None and argument.is_negated is None:  # a store_false called `--no-amp`
            return replace(found, is_doubtful=True)
        if found.knob is not None and name in self._gates and self._meaning(self._gates[name]) is not None:
            negated = _is_negated(name, argument)
            return Meaning(name=found.knob.alias, knob=found.knob, is_gate=True, is_negated=negated)
        return self._as_coded(replace(found, is_negated=_is_negated(name, argument)), argument, name)

    def _as_coded(self, found: Meaning, argument: Argument | None, name: str) -> Meaning:
        """Return a doubtful flag's meaning as a switch, if the script's code shows the value; else `found`."""
        is_flag = argument.is_flag if argument else any(one.name == name and one.value is None for one in self._given)
        if not found.is_doubtful or found.knob is None or not is_flag or self._precisions is None:
            return found
        coded = [value for value in found.knob.seen(Observed(precisions=self._precisions)) if value is not None]
        switch = next((one for one in switches(found.knob) if [found.knob.value_names[one]] == coded), None)
        return replace(found, name=switch, is_doubtful=False) if switch else found

    def _check(self, corrections: Mapping[str, str]) -> None:
        names = {normal(name) for name in (*(one.name for one in self._given), *self._declared)}
        for knob, name in corrections.items():
            if name != NOT_AN_ARGUMENT and normal(name) not in names:
                raise no_such_argument(knob, name, meant(knob))


def _is_negated(name: str, argument: Argument | None) -> bool:
    """Return whether a flag switches off: `--no-amp`, or one that argparse stores as false."""
    return is_negative(name) or bool(argument and argument.is_negated)


def _flag(meaning: Meaning, *, is_there: bool) -> str:
    return f"{{{meaning.name}:{NO_FLAG if meaning.is_negated else FLAG}={'true' if is_there else 'false'}}}"


def _pair(argument: Argument, meaning: Meaning, *, is_on: bool) -> str:
    """Return the placeholder for a pair of flags, of which one is always written."""
    on, off = argument.name[2:], argument.off[2:]
    return f"--{{{meaning.name}:{on}/{off}={on if is_on else off}}}"


def _shown(default: Any) -> str:
    return {True: "on", False: "off"}.get(default, str(default)) if isinstance(default, bool) else str(default)
