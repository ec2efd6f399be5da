"""Configurations are counted, found and compared without a list of them all."""

import pytest

from autotune.core.records import Goal
from autotune.sampler.configurations import Configurations, Watched
from autotune.sampler.encoding import Encoding
from autotune.sampler.space import MOST_LISTED_CONFIGS, change_count
from tests.knobs_beside import Beside, register
from tests.proposing import space_of
from tests.worlds import config, space

BATCHES = (8, 16, 32, 64)


def _conditional(monkeypatch):
    """`ahead` means something with two workers only, `rest` always."""
    register(monkeypatch, Beside("ahead", 3, only_with=("num_workers", 2)), Beside("rest", 2))
    return space_of(batch_size=BATCHES, num_workers=(0, 1, 2), ahead=(0, 1, 2), rest=(0, 1))


def test_what_means_nothing_under_a_condition_does_not_exist_there(monkeypatch):
    made = _conditional(monkeypatch)

    pairs = [(one["num_workers"], one["ahead"]) for one in made.configs if one.batch_size == 8 and not one["rest"]]

    assert len(made.configs) == len(set(made.configs)) == 4 * (2 + 3) * 2
    assert sorted(pairs) == [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2)]


def test_only_knobs_of_which_one_looks_at_the_other_share_a_block(monkeypatch):
    blocks = [set(block.names) for block in _conditional(monkeypatch).configs.blocks]

    assert {"batch_size", "gradient_accumulation_steps"} in blocks
    assert {"rest"} in blocks
    assert next(names for names in blocks if "ahead" in names) >= {"num_workers", "ahead"}


@pytest.mark.parametrize("made", [space(), space(Goal()), space(Goal(global_batch=96), config(batch_size=48))])
def test_every_configuration_has_a_number_and_is_found_by_its_values(made):
    everything = list(made.configs)

    assert len(everything) == len(made.configs) == len(set(everything))
    assert [made.configs[number] for number in range(len(everything))] == everything
    assert all(made.configs.at(made.configs.point(one)) == one for one in everything)
    assert all(one in made.configs and made.canonical(one) == one for one in everything)
    assert config(batch_size=7) not in made.configs
    assert "something else" not in made.configs


@pytest.mark.parametrize("changes", [1, 2])
def test_neighbours_are_those_within_so_many_changes(changes):
    made = space(Goal())
    own = next(iter(made.configs))

    near = {made.configs.at(point) for point in made.configs.near(made.configs.point(own), changes).tolist()}

    assert near == {other for other in made.configs if 0 < change_count(other, own) <= changes}


def test_the_nearest_configuration_is_the_nearest_of_all():
    made, outside = space(Goal(global_batch=64)), config(batch_size=48, num_workers=3, amp_dtype="bfloat16")

    nearest = made.nearest(outside)

    assert change_count(nearest, outside) == min(change_count(other, outside) for other in made.configs)
    assert nearest["amp_dtype"] == "bfloat16"


def test_values_and_combinations_of_some_knobs_need_no_list(monkeypatch):
    made = _conditional(monkeypatch)
    expected = {(one["num_workers"], one["ahead"], one["rest"]) for one in made.configs}
    _forbid_lists(monkeypatch)

    found = made.configs.combinations(("num_workers", "ahead", "rest"))

    assert {tuple(values.values()) for values in found} == expected
    assert made.configs.values("batch_size") == BATCHES


def test_of_very_many_configurations_a_fixed_sample_and_the_neighbours_are_looked_at(monkeypatch):
    made = _large(monkeypatch)
    _forbid_lists(monkeypatch)
    probed = made.complete({"batch_size": 16})

    looked_at, again = made.around([probed]), made.around([probed])

    assert len(made.configs) == 4 * 3 * 5**6
    assert looked_at == again
    assert len(set(looked_at)) == len(looked_at) <= MOST_LISTED_CONFIGS + 100
    assert all(one in made.configs for one in looked_at)
    assert made.complete({"batch_size": 32}) in looked_at
    assert not made.is_listed


def test_a_value_that_a_limit_leaves_out_may_stand_for_others(monkeypatch):
    """`ahead` is 0 without workers, even where only 1 and 2 may be searched."""
    register(monkeypatch, Beside("ahead", 3, only_with=("num_workers", 2)))
    encoding = Encoding(space_of(batch_size=(8,), num_workers=(0, 2), ahead=(1, 2)))

    found = {one: encoding.params(one) for one in encoding.configs}

    assert len(found) == 3
    assert all(encoding.config(params) == one for one, params in found.items())


@pytest.mark.parametrize("look", [dict.copy, lambda values: {**values}, lambda values: list(values.items())])
def test_who_looks_at_all_values_depends_on_all(look):
    values = Watched({"one": 1, "two": 2})

    look(values)

    assert values.seen == {"one", "two"}


def test_who_looks_at_one_value_depends_on_one():
    values = Watched({"one": 1, "two": 2})

    assert (values["one"], values.get("three", 3)) == (1, 3)
    assert values.seen == {"one", "three"}


def _large(monkeypatch):
    beside = [Beside(f"beside{number}", 5) for number in range(6)]
    register(monkeypatch, *beside)
    return space_of(batch_size=BATCHES, num_workers=(0, 1, 2), **{one.name: one.counts for one in beside})


def _forbid_lists(monkeypatch):
    def refuse(self):
        raise AssertionError("all configurations were listed")

    monkeypatch.setattr(Configurations, "__iter__", refuse)
