"""One description of every setting: command line, variables, Python call and identity of a study follow from it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pytest
import typer
from msgspec import Meta
from typer.testing import CliRunner

from autotune.api import race, search
from autotune.cli import options as command_line
from autotune.core.option import Option, described
from autotune.core.records import Goal, Share
from autotune.errors import UsageError
from autotune.preparation.fleet_settings import FleetSettings
from autotune.preparation.settings import Settings, options
from autotune.races.settings import RaceSettings
from autotune.units import parse_fraction

OF_THE_CALL = ("target", "map", "mode", "space", "reporter")  # described by hand in the Python call
OF_A_RACE = ("contestants", "configs", "tell")

OF_A_SEARCH = (*options(), *described(FleetSettings))


@dataclass(frozen=True, kw_only=True)
class Toy:
    """Settings with one option of every kind, and a field that is none."""

    share: Annotated[Share | None, Option(help="A share.", read=parse_fraction, short="-z", called="the share")] = None
    ratio: Annotated[float, Meta(gt=0, lt=9, description="in (0, 9)"), Option(help="A number.")] = 2.0
    wait_seconds: Annotated[float, Option(help="A duration.", typed="1s", read=lambda text: float(text[:-1]))] = 1.0
    size: Annotated[Literal["small", "large"], Option(help="A word.")] = "small"
    is_new: Annotated[bool, Option(help="A switch.")] = False
    hidden: int = 0


def _typed(monkeypatch: pytest.MonkeyPatch, words: list[str], **variables: str) -> tuple[dict[str, Any], str]:
    """What a command with the options of `Toy` makes of `words`, and its help."""
    monkeypatch.setattr(command_line, "options", lambda: described(Toy))
    made: list[dict[str, Any]] = []

    def command(context: typer.Context, *, last: bool = False, **typed: Any) -> None:
        made.append(command_line.Options(context).settings(typed))

    command.__annotations__ = {"context": typer.Context, "last": bool, "typed": Any, "return": None}
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command()(command_line.with_search_options(command))
    ended = CliRunner().invoke(app, words, env=variables, catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return (made or [{}])[0], " ".join(ended.output.split())


def test_a_described_field_is_an_option_with_its_help_default_and_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    help_text = _typed(monkeypatch, ["--help"])[1]

    for expected in ("-z, --share", "--wait", "default: 1s]", "AUTOTUNE_SIZE", "--is-new", "A switch."):
        assert expected in help_text
    assert "hidden" not in help_text


def test_what_is_typed_is_read_as_described(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = {"ratio": 2.0, "wait_seconds": 1.0, "size": "small", "is_new": False}
    assert defaults == _typed(monkeypatch, [])[0]

    typed = {"share": 0.08, "ratio": 3.5, "wait_seconds": 2.0, "size": "large", "is_new": True}
    assert (
        typed
        == _typed(monkeypatch, ["-z", "8%", "--ratio", "3.5", "--wait", "2s", "--is-new"], AUTOTUNE_SIZE="large")[0]
    )


def test_what_is_typed_wrong_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="--share: 'much' is not a share"):
        _typed(monkeypatch, ["--share", "much"])
    with pytest.raises(UsageError, match="--ratio: 'much' is not a number"):
        _typed(monkeypatch, ["--ratio", "much"])
    with pytest.raises(UsageError, match=r"--ratio must be in \(0, 9\), got 9\.0"):
        _typed(monkeypatch, ["--ratio", "9"])
    with pytest.raises(UsageError, match=r"size must be one of small, large, got 'huge'.*AUTOTUNE_SIZE"):
        _typed(monkeypatch, [], AUTOTUNE_SIZE="huge")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("share", 1.0, r"the share must be in \[0, 1\), got 1.0"),
        ("share", math.nan, "got nan"),
        ("share", "8%", "got '8%'"),
        ("size", "huge", "size must be one of small, large, got 'huge'"),
        ("size", None, "size must be one of small, large, got None"),
    ],
)
def test_a_value_is_checked_by_the_type_of_the_field(name: str, value: Any, told: str) -> None:
    option = next(one for one in described(Toy) if one.name == name)

    with pytest.raises(ValueError, match=told):
        option.check(value)


def test_a_value_that_fits_passes() -> None:
    share, _, wait, size, is_new = described(Toy)

    for option, value in ((share, 0), (share, None), (wait, -1.0), (size, "large"), (is_new, True)):
        option.check(value)


@pytest.mark.parametrize(
    ("call", "described_ones", "others"),
    [(search, OF_A_SEARCH, OF_THE_CALL), (race, described(RaceSettings), OF_A_RACE)],
    ids=["search", "race"],
)
def test_the_python_call_has_every_option_and_no_other(
    call: Callable[..., Any], described_ones: tuple[Option, ...], others: tuple[str, ...]
) -> None:
    names = [name for name in inspect.signature(call).parameters if name not in others]

    assert sorted(names) == sorted(one.name for one in described_ones)


@pytest.mark.parametrize(
    ("call", "one"),
    [*((search, one) for one in OF_A_SEARCH), *((race, one) for one in described(RaceSettings))],
    ids=lambda of: of.name if isinstance(of, Option) else of.__name__,
)
def test_the_python_call_takes_what_is_described(call: Callable[..., Any], one: Option) -> None:
    parameter = inspect.signature(call).parameters[one.name]
    hint = get_type_hints(call).get(one.name) or eval(parameter.annotation)  # an objective's is derived
    parts = get_args(hint) or (hint,)
    words = tuple(word for part in (hint, *parts) if get_origin(part) is Literal for word in get_args(part))

    assert (one.typed or one.default) == parameter.default
    assert one.choices == words
    assert (one.default is None) == (NoneType in parts)
    assert one.read is None or str in parts


@pytest.mark.parametrize(
    "one",
    [one for one in (*options(), *described(RaceSettings)) if one.typed],
    ids=lambda one: f"{one.name}-{one.typed}",
)
def test_a_default_that_is_shown_as_a_text_means_the_default(one: Option) -> None:
    assert one.read is not None
    assert one.default == one.read(one.typed or "")


def test_every_field_of_the_goal_is_one_option_but_the_limits_of_knobs() -> None:
    named = [one.goal for one in options() if one.goal]

    assert sorted(named) == sorted({*Goal.__struct_fields__} - {"limits", "objective_options"})


def test_what_is_no_option_is_known() -> None:
    assert {*Settings.__dataclass_fields__} - {one.field for one in options()} == {
        "target",
        "mode",
        "declared",
        "limits",
        "resume_line",
        "objective_options",
    }


def test_no_two_options_have_one_name() -> None:
    names = [one.name for one in OF_A_SEARCH]

    assert len(set(names)) == len(names)
