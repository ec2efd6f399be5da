"""The knobs that a target declares in `space`, or a user by options, and the functions that take them by name."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from autotune.core.records import Declaration, Value
from autotune.errors import TargetError
from autotune.knobs import OURS
from autotune.knobs.declared import are_numbers, declaration, is_mistyped, json_value, text
from autotune.targets.commands.command import Command
from autotune.targets.commands.placeholder import NEAR_NAME_RATIO
from autotune.targets.contract import Contract, is_factory
from autotune.targets.loaded import Loaded
from autotune.targets.named_arguments import takes

# Agreed names whose functions get the arguments that they ask for.
TAKERS = (
    "model", "dataset", "dataloader", "batch", "loss", "optimizer", "step", "scheduler", "ema", "sampler", "samples",
    "validation", "worst_batch", "setup",
)  # fmt: skip
TRAINER = "trainer"
BY_DICT = "knobs"  # the argument that gets all declared knobs as a dict


def of_module(loaded: Loaded, builder: str, asked: Sequence[Declaration]) -> tuple[Declaration, ...]:
    """Return the knobs that the target declares, and those of `asked`; each with its takers and its default.

    `builder` is the function that was named as the target, if any. Raises `TargetError` for a knob that no function
    takes.
    """
    written, baseline = _own_names(loaded, "space"), _own_names(loaded, "baseline")
    by_name = {name: _declared(name, value) for name, value in written.items()} | {one.name: one for one in asked}
    functions = dict(_functions(loaded, builder)) if by_name else {}
    found = []
    for name, one in by_name.items():
        takers = [taker for taker, function in functions.items() if takes(function, name)]
        by_dict = [taker for taker, function in functions.items() if takes(function, BY_DICT)]
        ours = [known for knob in OURS for known in (knob.name, knob.alias)]
        near = difflib.get_close_matches(name, ours, n=1, cutoff=NEAR_NAME_RATIO)
        if is_mistyped(name, ours) or not (takers or (by_dict and not near)):
            raise TargetError("space: " + _nobody_takes(name, loaded.label, functions, ours))
        one = replace(one, takers=tuple(takers))
        found.append(one if name in baseline else with_own_default(one, [functions[taker] for taker in takers]))
    return tuple(found)


def of_command(command: Command, asked: Sequence[Declaration]) -> tuple[Declaration, ...]:
    """Return the knobs that placeholders of the command declare; `asked` has precedence.

    Raises `TargetError` for a knob of `asked` that no placeholder declares.
    """
    by_name = {one.name: one for one in command.declared}
    for one in asked:
        if one.name not in by_name:
            example = f"{{{one.name}:{'/'.join(map(text, one.values))}}}"
            raise TargetError(
                f"space: the command has no {{{one.name}}}. A knob of your own is put in place of its name in braces, "
                f"and an argument without braces stays as it is typed. Write the argument that takes it, such as "
                f"--{one.name.replace('_', '-')} {example}."
            )
    today = command.baseline
    return tuple(replace(one, default=today[one.name]) for one in (by_name | {one.name: one for one in asked}).values())


def with_own_default(one: Declaration, takers: Sequence[Callable[..., Any]]) -> Declaration:
    """Return the knob with the plain default of the first function that takes it as its default: today's value.

    If the value is not among the knob's values, it is added, because the recommendation is compared with the code of
    today. None is not added: it mostly means that the function looks up the value itself.
    """
    defaults = [value for taker in takers if _is_plain(value := _default(taker, one.name))]
    if listed := [value for value in defaults if _is_listed(value, one)]:
        return replace(one, default=listed[0])
    if not defaults or defaults[0] in one.values:  # not 1 in addition to True or 1.0, which look the same
        return one
    added = declaration(one.name, [defaults[0], *one.values])
    ordered = one.ordered and (added.ordered or not are_numbers(one.values))
    memory = "changes" if one.memory == "grows" and not ordered else one.memory
    return replace(one, values=added.values, default=defaults[0], ordered=ordered, memory=memory)


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


def _own_names(loaded: Loaded, part: str) -> dict[str, Any]:
    """Return the entries of `space` or `baseline` besides our knobs; mistakes in ours are reported elsewhere."""
    own = {name: value for name, value in loaded.names.items() if name == part}
    given = Contract(label=loaded.label, root=loaded.root, names=own).make(part, {}) if own else {}
    ours = {known for knob in OURS for known in (knob.name, knob.alias)}
    return {str(name): value for name, value in given.items() if name not in ours} if isinstance(given, Mapping) else {}


def _declared(name: str, written: Any) -> Declaration:
    try:
        return declaration(name, written)
    except ValueError as error:
        raise TargetError(
            f'space["{name}"]: {error}. There is no knob of that name in autotune, so it was read as one of your own. '
            f'Write it as space = {{"{name}": ["a", "b"]}}; where a knob of autotune was meant, correct the name.'
        ) from error


def _functions(loaded: Loaded, builder: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    names = loaded.names
    for name in TAKERS:
        if name in names and is_factory(names[name]):
            yield name, names[name]
    if not loaded.is_whole_module:
        value = getattr(loaded.module, builder, None)
        if value is not None and is_factory(value):
            yield builder, value
    elif inspect.isfunction(trainer := vars(loaded.module).get(TRAINER)):
        yield TRAINER, trainer
    for name, value in vars(loaded.module).items():
        if inspect.isclass(value) and value.__module__ == loaded.module.__name__ and _is_of_lightning(value):
            yield name, value


def _is_of_lightning(kind: type) -> bool:
    return any(base.__name__ in ("LightningModule", "LightningDataModule") for base in kind.__mro__)


def _default(function: Callable[..., Any], name: str) -> Value:
    default: Value = json_value(inspect.signature(function).parameters[name].default)
    return default


def _is_listed(value: Any, one: Declaration) -> bool:
    return any(type(value) is type(listed) and value == listed for listed in one.values)


def _nobody_takes(name: str, label: str, functions: Mapping[str, Callable[..., Any]], ours: Collection[str]) -> str:
    theirs = {parameter for function in functions.values() for parameter in _parameters(function)}
    # Prefer names of the user's arguments to names that are merely similar.
    near = [
        *difflib.get_close_matches(name, ours, n=1, cutoff=NEAR_NAME_RATIO),
        *difflib.get_close_matches(name, sorted(theirs), n=1),
        *difflib.get_close_matches(name, ours, n=1),
    ]
    meant = next((one for one in near if one != name), None)
    hint = f"Did you mean {meant}? " if meant else ""
    if any(takes(function, name) for function in functions.values()):
        return (
            f"there is no knob {name!r}. It was probably mistyped. {hint}A knob of your own needs a name that is less "
            f"like one of autotune's."
        )
    names = " or ".join(f"{one}({name})" for one in list(functions)[:2]) or f"model({name})"
    return (
        f"there is no knob {name!r}, and no function that autotune calls in {label} takes an argument of that name. It "
        f"was probably mistyped. {hint}A knob of your own is handed to the functions that name it: write  def {names}"
    )


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def described(one: Declaration, *, of_command: bool) -> str:
    """Return the knob in words for `check`: `sdpa, flash: yours, handed to model()`."""
    takers = " and ".join(f"{taker}()" for taker in one.takers) or "whoever takes knobs"
    return (
        f"{', '.join(map(text, one.values))}: yours, {'put into the command' if of_command else f'handed to {takers}'}"
    )
