"""Every option of every command with values that nobody should type: an answer or a clear error, never a traceback."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer

from autotune.cli.app import app
from tests.fuzz.inprocess import assert_answered, target
from tests.reporting import ladder, recommendation, written

VALUES = (
    "", " ", "0", "-1", "1", "8", "1e400", "nan", "inf", "-inf", "9" * 60, "9" * 5000, "²", "1e3", "0x10", "1_000",
    "٣", "½", "2,49",
    "none", "None", "none:8", "1:none", ":", "8:", ":8", "8:2", "1:2:3", ",", ",,", "8,,8", "8,16", "bf16", "none:bf16",
    "=", "batch=", "=1", "batch=1=2", "batch=64", "bitch=64", "amp=bf16,workers=none", "batch=8,batch=16",
    "2", "90s", "1h30", "1h30m", "5 minutes", "-5m", "8GiB", "8", "8 gib", "90%", "-5%", "101%", "%", "keep", "free",
    "cpu", "cuda", "cuda:99", "gpu", "mps:x", "tpu", ".", "..", "~", "missing/folder", "model.py", "model.py:build",
    "studies", "-", "--", "--json", "x" * 5000, "a\nb", "\x1b[31mred", "\x07", "\u202ereversed", "🚀", "\udcff",
    "'; rm -rf x; '", "$(id)", "{}", "[1]", "{{ 7 }}", "[bold]", "%s%n", "True", "true", "null",
)  # fmt: skip
NEVER = ("--help", "--version")
FEW = 20  # values for what has few parsers of its own; `search` is given all of them


def _commands() -> dict[str, Any]:
    return dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def _options() -> Iterator[tuple[str, str, bool]]:
    """Command, option, and whether it takes a value; a new option is tried without anybody naming it here."""
    for name, command in _commands().items():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                for word in (*parameter.opts[:1], *parameter.secondary_opts):
                    if word not in NEVER:
                        yield name, word, not (parameter.is_flag or parameter.count)


def _values(*place: str) -> Iterable[str]:
    """The values to try there: others at each place, the same in every run."""
    return VALUES if place[0] == "search" else random.Random(" ".join(place)).sample(VALUES, FEW)


def _words(command: str, *more: str) -> tuple[str, ...]:
    """A call of this command that is right but for `more`."""
    own = {
        "search": ("model.py", "--dry-run"), "check": ("model.py",), "init": ("new.py",), "compare": ("one", "two"),
    }.get(command, ())  # fmt: skip
    return (command, *own, *more)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of its own with a target and two studies; nobody is served for ever."""
    monkeypatch.chdir(tmp_path)
    target(tmp_path)
    for name in ("one", "two"):
        written(tmp_path / "studies" / name, ladder()[:3], recommendation())
    with mock.patch("uvicorn.Server.run", side_effect=KeyboardInterrupt):
        yield tmp_path


@pytest.mark.parametrize(("command", "option"), [(c, o) for c, o, takes in _options() if takes])
def test_an_option_explains_every_value_that_it_does_not_take(command: str, option: str) -> None:
    assert_answered(_words(command, f"{option}={value}") for value in _values(command, option))


@pytest.mark.parametrize(("command", "option"), [(c, o) for c, o, takes in _options() if not takes])
def test_a_switch_takes_no_value(command: str, option: str) -> None:
    assert_answered([_words(command, option), _words(command, f"{option}=maybe"), _words(command, option, option)])


@pytest.mark.parametrize("command", list(_commands()))
def test_a_command_explains_every_argument_that_it_does_not_take(command: str) -> None:
    few = ("-n", "1") if command == "search" else ()  # of its probes: the argument is tried, not the search
    for value in _values(command):
        assert_answered([(command, value, *few), _words(command, value)])


@pytest.mark.parametrize("seed", range(40))
def test_options_in_any_combination_end_in_an_answer_or_an_error(seed: int) -> None:
    chance = random.Random(seed)
    takes = [option for command, option, value in _options() if command == "search" and value]
    takes = [option for option in takes if option not in ("--study", "--output")]
    likely = ("8", "8,16", "8:32", "none", "bf16", "batch=64", "keep", "free", "5%", "90s", "full", "off", "random")
    chosen = chance.sample(takes, chance.randint(1, 5))
    words = [f"{option}={chance.choice(chance.choice((VALUES, likely)))}" for option in chosen]

    assert_answered([("search", "model.py", "-n", "2", "-q", *words)])
