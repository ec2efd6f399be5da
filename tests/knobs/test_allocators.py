"""The knobs of allocators: where they are offered, and what they set."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from autotune.core.records import Limit, Value
from autotune.knobs import environ, knob, not_done
from autotune.knobs.observed import Observed
from autotune.testing.knob_contract import CPU, circumstances
from autotune.testing.machine import ENVIRONMENT

ALL = ("glibc", "jemalloc", "tcmalloc")


@pytest.mark.parametrize(
    ("changes", "domain"),
    [
        ({"mallocs": ALL}, (None, "glibc")),  # one of them: the one that needs no library
        ({"mallocs": ("jemalloc", "tcmalloc")}, (None, "tcmalloc")),
        ({}, (None,)),  # not Linux, or musl
        ({"mallocs": ALL, "variables": ("LD_PRELOAD",)}, (None,)),  # what the user sets stays
        ({"mallocs": ALL, "variables": ("GLIBC_TUNABLES",)}, (None,)),
        ({"mallocs": ALL, "variables": ("PYTORCH_ALLOC_CONF",)}, (None, "glibc")),
        ({"mallocs": ALL, "device": "cuda:0"}, (None,)),
    ],
)
def test_one_other_malloc_is_offered_on_a_cpu(changes: dict[str, Any], domain: tuple[Value, ...]) -> None:
    assert knob("malloc").domain(circumstances(replace(CPU, **changes))) == domain


@pytest.mark.parametrize(
    ("changes", "domain"),
    [
        ({}, (None, "expandable_segments")),
        ({"torch": "2.8.0+cu128"}, (None,)),  # which does not know the variable
        ({"platform": "Windows"}, (None,)),
        ({"variables": ("PYTORCH_CUDA_ALLOC_CONF",)}, (None,)),
        ({"device": "cpu"}, (None,)),
    ],
)
def test_expandable_segments_are_offered_on_cuda_unless_the_user_configures_it(
    changes: dict[str, Any], domain: tuple[Value, ...]
) -> None:
    assert knob("allocator").domain(circumstances(replace(ENVIRONMENT, **changes))) == domain
    assert knob("allocator").on_request


def test_who_lists_values_is_obeyed() -> None:
    assert knob("malloc").domain(circumstances(CPU, limit=Limit(values=ALL))) == ALL


def test_they_are_variables_of_the_process() -> None:
    assert environ({"malloc": "jemalloc"})["LD_PRELOAD"] == "libjemalloc.so.2"
    kept = "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=4611686018427387904"
    assert environ({"malloc": "glibc"}) == {"GLIBC_TUNABLES": kept}
    assert environ({"malloc": "tcmalloc"}) == {"LD_PRELOAD": "libtcmalloc_minimal.so.4"}
    assert environ({"allocator": "expandable_segments"}) == {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}


@pytest.mark.parametrize(
    ("asked", "seen", "is_done"),
    [
        ({"malloc": "jemalloc"}, Observed(malloc="jemalloc"), True),
        ({"malloc": "jemalloc"}, Observed(malloc="auto"), False),
        ({"malloc": "jemalloc"}, Observed(malloc="tcmalloc"), False),
        ({"malloc": None}, Observed(malloc="tcmalloc"), True),  # the user preloads it
        ({"malloc": "jemalloc"}, Observed(), True),  # not Linux: cannot be told
        ({"allocator": "expandable_segments"}, Observed(expandable_segments=True), True),
        ({"allocator": "expandable_segments"}, Observed(expandable_segments=False), False),
        ({"allocator": None}, Observed(expandable_segments=True), True),
    ],
)
def test_whether_they_took_effect_is_known(asked: dict[str, Value], seen: Observed, is_done: bool) -> None:
    assert (not_done(asked, seen) is None) is is_done
