"""Ranks know their place, and what all of them say."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.targets.ranks.world import RANKS_FOLDER_VARIABLE, World, agreed, gathered, join, world
from tests.ranks import on_ranks

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}


def test_a_process_that_nobody_made_a_rank_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RANKS_FOLDER_VARIABLE, raising=False)

    join("cpu")

    assert world() == World(rank=0, size=1, folder=None)
    assert (agreed(7), gathered(7, 8)) == (7, (7, 8))


def test_the_ranks_of_a_users_own_launcher_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)

    assert world() == World()


def test_a_rank_knows_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {**TORCHRUN, RANKS_FOLDER_VARIABLE: str(tmp_path)}.items():
        monkeypatch.setenv(name, value)

    assert world() == World(rank=1, size=2, folder=tmp_path)


@pytest.mark.slow
def test_ranks_agree_on_what_rank_0_says(tmp_path: Path) -> None:
    code = """
world.join("cpu")
world.join("cpu")  # a second time does nothing
tell(agreed=world.agreed(10 + RANK), gathered=world.gathered(RANK, -5))
"""
    told = on_ranks(tmp_path, code)

    assert [one["agreed"] for one in told] == [10, 10]
    assert [one["gathered"] for one in told] == [[0, -5, 1, -5]] * 2
