"""prefetch_factor, persistent_workers and pin_memory: where they are offered, folded, applied and written."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from autotune.core.records import Goal, Limit, Value
from autotune.knobs import defaults, knob, plan_of
from autotune.knobs.observed import Observed
from autotune.knobs.training_arguments import all_arguments
from autotune.testing.knob_contract import CPU, SMALL, circumstances
from autotune.testing.machine import ENVIRONMENT
from tests.worlds import space

PROGRAM = replace(SMALL, owns_loop=True, is_program=True, settable=("prefetch_factor", "pin_memory"))


@pytest.mark.parametrize(
    ("name", "here", "domain"),
    [
        ("prefetch_factor", {}, (None, 4)),
        ("prefetch_factor", {"environment": CPU}, (None,)),  # it competes for the same cores, whatever waits
        ("prefetch_factor", {"environment": CPU, "limit": Limit(low=1, high=8)}, (1, None, 4, 8)),
        ("prefetch_factor", {"limit": Limit(values=(3,))}, (3,)),
        ("prefetch_factor", {"facts": replace(SMALL, takes_workers=False)}, (None,)),
        ("prefetch_factor", {"facts": replace(SMALL, loader_options=())}, (None,)),
        ("prefetch_factor", {"facts": replace(SMALL, data="batch")}, (None,)),
        ("pin_memory", {}, (None,)),  # a loop of ours pins
        ("pin_memory", {"facts": PROGRAM}, (None, True)),
        ("pin_memory", {"facts": PROGRAM, "environment": CPU}, (None,)),
        ("pin_memory", {"limit": Limit(values=(None, False))}, (None, False)),
        ("persistent_workers", {}, (None, False)),
        ("persistent_workers", {"facts": PROGRAM}, (None, True)),
        ("persistent_workers", {"facts": replace(SMALL, loader_options=("pin_memory",))}, (None,)),
    ],
)
def test_they_are_offered_where_they_can_do_something(
    name: str, here: dict[str, Any], domain: tuple[Value, ...]
) -> None:
    assert knob(name).domain(circumstances(**{"environment": ENVIRONMENT, **here})) == domain


def test_a_plain_search_on_a_cpu_has_none_of_them() -> None:
    free = space(on=replace(CPU, mallocs=("glibc", "tcmalloc"))).free

    assert not {"prefetch_factor", "pin_memory", "persistent_workers", "allocator", "malloc"} & free.keys()


@pytest.mark.parametrize(
    ("values", "folded"),
    [
        ({"num_workers": 0, "prefetch_factor": 4, "persistent_workers": False}, (None, None)),
        ({"num_workers": 2, "prefetch_factor": 2, "persistent_workers": True}, (None, None)),
        ({"num_workers": 2, "prefetch_factor": 4, "persistent_workers": False}, (4, False)),
    ],
)
def test_what_does_nothing_is_folded(values: dict[str, Value], folded: tuple[Value, ...]) -> None:
    whole = defaults() | values

    found = (knob(name).canonical(whole, circumstances()) for name in ("prefetch_factor", "persistent_workers"))

    assert tuple(found) == folded


@pytest.mark.parametrize(
    ("device", "value", "folded"), [("cpu", True, None), ("cpu", False, None), ("cuda:0", True, None),
                                    ("cuda:0", False, False)]
)  # fmt: skip
def test_pinning_is_the_default_on_cuda_and_nothing_elsewhere(device: str, value: bool, folded: Value) -> None:
    here = circumstances(replace(ENVIRONMENT, device=device))

    assert knob("pin_memory").canonical(defaults() | {"pin_memory": value}, here) is folded


def test_what_a_program_is_given_is_not_folded() -> None:
    today = {"pin_memory": True, "persistent_workers": True, "prefetch_factor": 2}
    here = circumstances(CPU, facts=replace(PROGRAM, baseline=today))
    given, other = defaults() | today, {**defaults(), "prefetch_factor": 4}

    for name, value in today.items():
        assert knob(name).canonical(given, here) == value
    assert knob("prefetch_factor").canonical(other, here) == 2  # without workers it would do nothing


def test_a_search_without_workers_knows_one_configuration_of_them() -> None:
    asked = {"prefetch_factor": Limit(values=(None, 4))}
    made = space(Goal(tune=("num_workers", "prefetch_factor"), limits=asked))

    assert {c["prefetch_factor"] for c in made.configs if not c["num_workers"]} == {None}
    assert {c["prefetch_factor"] for c in made.configs if c["num_workers"]} == {None, 4}


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ({"prefetch_factor": 4, "persistent_workers": False, "num_workers": 0}, {"pin_memory": True}),
        (
            {"prefetch_factor": 4, "num_workers": 2},
            {"pin_memory": True, "persistent_workers": True, "prefetch_factor": 4},
        ),
        (
            {"persistent_workers": False, "pin_memory": False, "num_workers": 2},
            {"pin_memory": False, "persistent_workers": False, "prefetch_factor": 2},
        ),
    ],
)
def test_they_change_the_options_of_the_loader(values: dict[str, Value], options: dict[str, Any]) -> None:
    found = plan_of(defaults() | values, "cuda:0").loader_options

    assert {name: value for name, value in found.items() if name in options or name == "prefetch_factor"} == options


def test_a_trainer_of_transformers_is_given_them_by_its_own_names() -> None:
    whole = defaults() | {"num_workers": 2, "prefetch_factor": 4, "persistent_workers": False}

    said = all_arguments(whole, plan_of(whole, "cpu"))

    assert (said["dataloader_prefetch_factor"], said["dataloader_persistent_workers"]) == (4, False)


@pytest.mark.parametrize(
    ("name", "observed", "seen"),
    [
        ("prefetch_factor", {"workers": 2, "prefetch_factor": 4}, (None, 4)),
        ("prefetch_factor", {"workers": 0}, (None,)),
        ("prefetch_factor", {}, ()),
        ("persistent_workers", {"workers": 2, "persistent_workers": False}, (None, False)),
        ("persistent_workers", {"workers": 0}, (None,)),
        ("pin_memory", {"pin_memory": True}, (None, True)),
        ("pin_memory", {}, ()),  # no accelerator: nothing is pinned, whoever asks
    ],
)
def test_what_is_seen_agrees_with_itself_and_with_nothing_asked(
    name: str, observed: dict[str, Any], seen: tuple[Value, ...]
) -> None:
    assert knob(name).seen(Observed(**observed)) == seen
