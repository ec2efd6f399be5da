"""Settings of knobs that the target declares: they are checked once the inspection has shown which there are."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from autotune.core.records import Limit, TargetFacts, Value
from autotune.errors import UsageError
from autotune.knobs import is_ours, knob
from autotune.knobs.declared import text
from autotune.knobs.parsing import full_name
from autotune.preparation.settings import Settings


def with_declared(settings: Settings) -> Settings:
    """Return the settings with values as the target declares them. Raises `UsageError` for a name that it does not."""

    def known(option: str, name: str) -> str:
        try:
            return full_name(name)
        except ValueError as error:
            raise UsageError(f"{option}: {error} Knobs of your own are declared in `space` of the target.") from None

    def meant(option: str, name: str, value: Value) -> Value:
        if is_ours(known(option, name)):
            return value
        try:
            return knob(name).parse(text(value))
        except ValueError as error:
            raise UsageError(f"{option}: {error}. It was probably mistyped. Correct it, or leave it out.") from error

    return replace(
        settings,
        baseline={name: meant("--baseline", name, value) for name, value in settings.baseline.items()},
        tune=None if settings.tune is None else tuple(known("--tune", name) for name in settings.tune),
        limits={
            known("--fix", name): limit
            if limit.values is None
            else Limit(values=tuple(meant("--fix", name, value) for value in limit.values))
            for name, limit in settings.limits.items()
        },
    )


def declared_baseline(settings: Settings, facts: TargetFacts) -> dict[str, Value]:
    """Return the values of the baseline as the user, or else the target, declares them."""
    return {**(facts.baseline or {}), **settings.baseline}


def with_todays_defaults(facts: TargetFacts, settings: Settings) -> TargetFacts:
    """Return the facts with the baseline's values as the defaults of declared knobs, the reference for losses."""
    today = declared_baseline(settings, facts)
    declared = (structs.replace(one, default=today.get(one.name, one.default)) for one in facts.declared)
    return structs.replace(facts, declared=tuple(declared))
