"""Calls the user's functions with the arguments that they name, as pytest does with fixtures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any

from autotune.errors import TargetError

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def takes_nothing(function: Callable[..., Any]) -> bool:
    """Return whether `function` can be called without arguments."""
    return not _required(inspect.signature(function))


def takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether `function` has an argument `name`, and so gets it."""
    try:
        parameter = inspect.signature(function).parameters.get(name)
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    return parameter is not None and parameter.kind in _NAMED


def takes_option(function: Callable[..., Any], name: str) -> bool:
    """Return whether `function` gets the option `name`: it has that argument, or takes `**options`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    return takes(function, name) or any(one.kind is one.VAR_KEYWORD for one in parameters)


def takes_just(function: Callable[..., Any], *names: str) -> bool:
    """Return whether `function` has exactly these arguments in this order, so that they can be passed by position."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    return tuple((p.name, p.kind) for p in parameters) == tuple((name, _NAMED[0]) for name in names)


def bind(
    function: Callable[..., Any],
    name: str,
    offered: Collection[str],
    *,
    sole: str = "",
    spread: Collection[str] = (),
    advice: str = "",
) -> Callable[..., Any]:
    """Return a callable that takes all of `offered` by keyword and passes `function` those that it names.

    `sole` is the offered argument for a function's only required parameter, whatever its name; `spread` are offers for
    a function's `**options`. Raises `TargetError` if the function requires anything that is not offered, with `advice`,
    or advice to add a default.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have no signature
        return (lambda **values: function(values[sole])) if sole else (lambda **values: function())
    parameters, required = list(signature.parameters.values()), _required(signature)
    if sole and len(required) == 1 and required[0].name not in offered:
        return lambda **values: function(values[sole])
    missing = [p.name for p in required if p.name not in offered or p.kind not in _NAMED]
    if missing:
        passed = f"can pass only {', '.join(sorted(offered))}" if offered else "passes it nothing"
        todo = advice or f'Give "{missing[0]}" a default.'
        raise TargetError(f'{name}() asks for "{missing[0]}"; autotune {passed}. {todo}')
    taken = [p.name for p in parameters if p.name in offered and p.kind in _NAMED]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        taken += [option for option in spread if option not in taken]
    return lambda **values: function(**{one: values[one] for one in taken})


def _required(signature: inspect.Signature) -> list[inspect.Parameter]:
    return [p for p in signature.parameters.values() if p.default is p.empty and p.kind not in _STARRED]
