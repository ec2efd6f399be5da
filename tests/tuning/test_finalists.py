"""Whom a finalist races: itself without what is in doubt."""

import dataclasses

import pytest
from msgspec.structs import replace

from autotune.context.budget import TimeBudget
from autotune.core.records import Goal
from autotune.core.results import Outcome
from autotune.precision.records import PrecisionCheckRequest
from autotune.sampler.space import change_count
from autotune.testing import FakeLauncher
from autotune.testing.machine import Machine
from autotune.tuning.finalists import check_precision, settled_finalists
from tests.worlds import (
    config,
    context,
    declared,
    environment,
    facts,
    failed,
    measured,
    searched,
    space,
    study_request,
    trial,
)

BASE = config(batch_size=64)
UNDECIDED = {PrecisionCheckRequest: lambda request: Outcome.TIMEOUT}
DOUBTED, HELD = config(batch_size=64, amp_dtype="bfloat16", num_workers=2), config(batch_size=64, num_workers=2)


def _settled(tmp_path, held_rate=None, launcher=None, left=None):
    """Who races after single probes of the baseline, of bfloat16 with two workers, and perhaps of two workers alone."""
    rates = {BASE: 100.0, DOUBTED: 160.0} | ({HELD: held_rate} if held_rate else {})
    trials = [
        trial(measured(rate), number, "search" if number else "baseline", **one.values)
        for number, (one, rate) in enumerate(rates.items())
    ]
    launcher = launcher or FakeLauncher(faults=UNDECIDED)
    search = context(tmp_path, launcher, trials=trials)
    check_precision(search)
    found = settled_finalists(search)
    if left is not None:
        short = TimeBudget(search.history, 60.0, lambda: 60.0 - left, 0.0)
        found = settled_finalists(dataclasses.replace(search, budget=short))
    return [one.config for one in found]


def test_where_losses_are_undecided_the_baselines_arithmetic_races_beside(tmp_path):
    assert _settled(tmp_path)[:2] == [DOUBTED, HELD]


def test_where_losses_match_it_races_alone(tmp_path):
    assert _settled(tmp_path, launcher=FakeLauncher()) == [DOUBTED]


@pytest.mark.parametrize(("rate", "confirmed"), [(155.0, HELD), (120.0, DOUBTED), (None, DOUBTED)])
def test_without_time_for_both_what_is_undecided_races_if_it_gained_enough(tmp_path, rate, confirmed):
    assert _settled(tmp_path, rate, left=20.0) == [confirmed]


FOUND = config(64, num_workers=2, channels_last=True)


def _beside(tmp_path, *probes, left=30.0, budget=60.0, launcher=None, **options):
    """Who is confirmed after single probes of the baseline and of (configuration, rate or result), losses compared.

    Where the budget leaves no time for an ablation. `options` are other parts of the context.
    """
    rates = ((BASE, 100.0), *probes)
    trials = [
        trial(
            measured(rate) if isinstance(rate, float) else rate,
            number,
            "search" if number else "baseline",
            **one.values,
        )
        for number, (one, rate) in enumerate(rates)
    ]
    search = dataclasses.replace(context(tmp_path, launcher or FakeLauncher(), trials=trials), **options)
    check_precision(search)
    short = TimeBudget(search.history, budget, lambda: budget - left, 0.0)
    return [one.config for one in settled_finalists(dataclasses.replace(search, budget=short))]


def test_a_change_that_no_probe_was_without_is_taken_back_in_the_same_rounds(tmp_path):
    first, reduced = _beside(tmp_path, (FOUND, 200.0))

    assert first == FOUND
    assert change_count(reduced, BASE) == 1


@pytest.mark.parametrize(("rate", "is_doubtful"), [(191.0, True), (150.0, False)])
def test_a_change_that_brought_no_more_than_noise_is_taken_back_in_the_same_rounds(tmp_path, rate, is_doubtful):
    without = config(64, channels_last=True)
    seen = ((FOUND, 200.0), (config(64, num_workers=2), 120.0), (without, rate))

    assert (without in _beside(tmp_path, *seen)) is is_doubtful


def test_a_change_is_doubtful_while_the_windows_of_its_probes_leave_it_open(tmp_path):
    """As seen: 32×2 did 191 samples/s ± 4%, 64×1 165 ± 16%, and in rounds both did 185."""
    without = config(64, channels_last=True)
    rough = measured(170.0)
    rough = replace(rough, measurement=replace(rough.measurement, relative_half_width=0.16))
    seen = (FOUND, 200.0), (config(64, num_workers=2), 120.0)

    assert without in _beside(tmp_path / "rough", *seen, (without, rough))
    assert without not in _beside(tmp_path / "known", *seen, (without, 170.0))


def test_without_time_for_both_the_fastest_is_confirmed_alone(tmp_path):
    assert _beside(tmp_path, (FOUND, 200.0), left=18.0) == [FOUND]


def test_where_losses_are_undecided_who_holds_the_arithmetic_is_confirmed_without_its_doubtful_changes(tmp_path):
    """As seen: channels_last was recommended, of which two single probes said that it costs 8 %."""
    many, few = (config(64, num_workers=2, amp_dtype="bfloat16", channels_last=is_last) for is_last in (True, False))
    alone = config(64, amp_dtype="bfloat16", channels_last=True)

    probed = (many, 200.0), (few, 191.0), (alone, 130.0)
    beside = _beside(tmp_path, *probed, left=40.0, launcher=FakeLauncher(faults=UNDECIDED))

    assert beside == [many, config(64, num_workers=2, channels_last=True), config(64, num_workers=2)]


def test_a_change_without_which_memory_ran_out_is_kept_and_the_others_are_taken_back(tmp_path):
    found = config(64, num_workers=2, channels_last=True, amp_dtype="bfloat16")
    full = config(64, num_workers=2, channels_last=True)

    first, reduced = _beside(tmp_path, (found, 200.0), (full, failed()))

    assert first == found
    assert reduced["amp_dtype"] == "bfloat16"


def test_a_finalist_that_is_the_first_one_in_full_precision_by_chance_is_not_the_probable_answer(tmp_path):
    first = config(64, num_workers=2, channels_last=True, amp_dtype="bfloat16")
    twin = config(64, num_workers=2, channels_last=True)
    near = config(64, num_workers=4, channels_last=True, amp_dtype="bfloat16")

    confirmed = _beside(tmp_path, (first, 200.0), (twin, 195.0), (near, 193.0), left=80.0, budget=90.0)

    assert config(64, channels_last=True) not in confirmed


def test_where_half_the_batch_was_faster_a_quarter_races_beside_and_not_the_double(tmp_path):
    """As seen: bf16 was fastest at 512 and refused, so that 1024, 2048 and 512 raced in fp32, and 256 is the knee."""
    base, half = config(batch_size=32), {"amp_dtype": "bfloat16"}
    probes = {base: 81.0, config(1024): 181.0, config(2048, **half): 126.0, config(1024, **half): 176.0}
    probes |= {config(512, **half): 209.0, config(128, **half): 134.0}
    trials = [
        trial(measured(rate, samples=one.batch_size), number, "search" if number else "baseline", **one.values)
        for number, (one, rate) in enumerate(probes.items())
    ]
    asked = study_request(goal=Goal(), baseline=base, baseline_assumed=True)
    search = context(tmp_path, FakeLauncher(bad_dtypes=["bfloat16"]), trials=trials, request=asked)
    search = dataclasses.replace(search, space=space(goal=asked.goal, baseline=base))
    check_precision(search)
    budget = TimeBudget(search.history, 120.0, lambda: 20.0, 0.0)

    found = settled_finalists(dataclasses.replace(search, budget=budget))

    assert [one.config for one in found] == [config(1024), config(256), config(512)]


ON_A_CPU = environment(device="cpu", capability=None, mallocs=("glibc",))
LOADED, KEEPING = config(64, num_workers=2), config(64, num_workers=2, malloc="glibc")


@pytest.mark.parametrize(
    ("rate", "left", "confirmed"),
    [
        (280.0, 33.0, [LOADED, KEEPING]),
        (220.0, 33.0, [LOADED]),  # two probes of one configuration differ by as much
        (280.0, 25.0, [LOADED]),  # without time for both, the one that needs no proof is confirmed
    ],
)
def test_an_environment_variable_that_leads_by_more_than_luck_races_beside_the_first(tmp_path, rate, left, confirmed):
    on_a_cpu = space(of=facts(space={}), on=ON_A_CPU)

    assert _beside(tmp_path, (LOADED, 200.0), (KEEPING, rate), left=left, space=on_a_cpu) == confirmed


def test_the_variable_of_another_configuration_is_raced_with_the_changes_of_the_first_alone(tmp_path):
    on_a_cpu = space(of=facts(space={}), on=ON_A_CPU)
    lucky = config(64, num_workers=2, channels_last=True, num_threads=4, malloc="glibc")

    assert _beside(tmp_path, (LOADED, 200.0), (lucky, 280.0), left=33.0, space=on_a_cpu) == [LOADED, KEEPING]


def test_a_variable_that_needs_proof_keeps_its_place_beside_one_with_fewer_changes(tmp_path):
    on_a_cpu = space(of=facts(space={}), on=ON_A_CPU)
    kept = config(**FOUND.values | {"malloc": "glibc"})

    found = _beside(tmp_path, (FOUND, 200.0), (kept, 280.0), left=33.0, space=on_a_cpu)
    more = _beside(tmp_path / "more", (FOUND, 200.0), (kept, 280.0), left=45.0, space=on_a_cpu)

    assert found == [FOUND, kept]
    assert more[:2] == [FOUND, kept]
    assert change_count(more[2], BASE) == 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Keeping(Machine):
    """A machine on which malloc takes a part of computing, of which no page faults tell."""

    kept_factor: float = 1.0

    def computing_seconds(self, config):
        return super().computing_seconds(config) * (self.kept_factor if config["malloc"] else 1.0)


@pytest.mark.parametrize(("factor", "malloc"), [(0.7, "glibc"), (1.0, None)])
def test_a_short_search_recommends_a_malloc_that_rounds_show_to_gain_and_no_other(tmp_path, factor, malloc):
    known = declared()
    known = replace(known, space={name: limit for name, limit in known.space.items() if name != "malloc"})
    machine = Keeping(kept_factor=factor, cores=4, sample_loading_seconds=1e-7, noise_between_probes=0.02)
    on = replace(ON_A_CPU, usable_cores=4, default_threads=4)
    launcher = FakeLauncher(machine=machine, facts=known, environment=on, starting_seconds={"start": 3.0}, seed=1)

    answer = searched(tmp_path, launcher, seed=1, sampler="structured", time_budget_seconds=60)

    assert answer.params["malloc"] == malloc
    assert launcher.clock() <= 1.1 * 60
