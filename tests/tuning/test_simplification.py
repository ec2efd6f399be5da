"""A short search has no time to take its changes back after the race: what brings nothing is left out before."""

import dataclasses

import msgspec
import pytest

from autotune.answer.choice import simplest
from autotune.core.records import Config, Goal
from autotune.core.results import FAULT_SECONDS
from autotune.knobs.changes import changes_between
from autotune.sampler.prediction import Prediction
from autotune.study.summary import ConfigSummary
from autotune.study.view import load_view
from autotune.testing import FakeLauncher
from autotune.testing.machine import Machine
from autotune.tuning.probing import probe_with_retry
from autotune.tuning.reversions import obstacle
from autotune.tuning.simplification import (
    halved,
    preferred,
    scores_without_idle_changes,
    simpler,
    without_idle_changes,
)
from tests.worlds import (
    NoModel,
    config,
    context,
    declared,
    environment,
    facts,
    measured,
    searched,
    space,
    study_request,
    trial,
)

SHORT = {"sampler": "structured", "time_budget_seconds": 60}
SAME = {None: 1.0, "bfloat16": 1.0, "float16": 1.0}


def _starting_slowly(**differing):
    """A machine on which a probe takes four seconds and workers alone bring anything."""
    machine = dataclasses.replace(
        Machine(), cores=4, channels_last_factor=SAME, per_sample_seconds=dict.fromkeys(SAME, 0.0004),
        fixed_seconds=dict.fromkeys(SAME, 1e-5), noise_between_probes=0.01, **differing
    )  # fmt: skip
    return FakeLauncher(machine=machine, facts=declared(), starting_seconds={"start": 3.0})


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_short_search_leaves_out_what_brings_nothing(tmp_path, seed):
    launcher = _starting_slowly(sample_loading_seconds=0.0015)

    answer = searched(tmp_path, launcher, seed=seed, **SHORT)

    assert [names for names in changes_between(answer.baseline, answer.params)] == [("num_workers",)]
    assert launcher.clock() <= 1.1 * 60


def test_what_was_left_out_was_itself_run_and_confirmed(tmp_path):
    answer = searched(tmp_path, _starting_slowly(sample_loading_seconds=0.0015), seed=1, **SHORT)

    ran = [one for one in load_view(tmp_path).trials if one.config == Config(values=answer.params)]
    assert {one.purpose for one in ran} >= {"search", "confirm"}
    assert answer.rounds >= 2


def test_of_those_that_are_slower_by_no_more_than_a_share_the_one_with_the_fewest_changes_is_the_simplest():
    many = ConfigSummary(config=config(64, amp_dtype="bfloat16", channels_last=True), found=1000.0)
    few = ConfigSummary(config=config(64, amp_dtype="bfloat16"), found=960.0)
    slow = ConfigSummary(config=config(64, channels_last=True), found=900.0)

    assert simplest([many, few, slow], study_request(), 0.05) == few
    assert simplest([many, few, slow], study_request(), 0.03) == many
    assert simplest([], study_request(), 0.03) is None


def test_half_of_what_is_doubtful_is_taken_back_where_all_of_it_loses():
    assert halved("abcd") == ["abcd", "ab", "cd", "a", "b", "c", "d"]
    assert halved("abc") == ["abc", "a", "bc", "b", "c"]
    assert halved("a") == ["a"]
    assert halved("") == []


def _probed(folder, loading, *probes, **differing):
    """A search on a machine with so many seconds of loading for each sample, and a baseline probed without workers."""
    machine = Machine(sample_loading_seconds=loading, noise_between_probes=0.0, noise_between_steps=0.0, **differing)
    search = context(folder, FakeLauncher(machine=machine), request=study_request())
    for number, one in enumerate((search.request.baseline, *probes)):
        probe_with_retry(search, one, "search" if number else "baseline")
    return search


COMPUTED = {"amp_dtype": "bfloat16", "channels_last": True}  # what only computes, of what this machine has


@pytest.mark.parametrize(("loading", "kept"), [(0.02, {}), (0.0001, COMPUTED)])
def test_what_only_computes_is_left_out_where_loading_takes_longer_than_all_computing(tmp_path, loading, kept):
    found = config(64, num_workers=4, **COMPUTED)
    search = _probed(tmp_path, loading, found)
    (rate,) = {v.value for t, v in search.history.judged if t.config == found}

    assert without_idle_changes(search, found, rate) == config(64, num_workers=4, **kept)


def test_without_workers_computing_and_loading_add_up_and_nothing_is_idle(tmp_path):
    found = config(64, **COMPUTED)

    assert without_idle_changes(_probed(tmp_path, 0.02, found), found, 40.0) == found


def test_probes_that_differ_in_idle_changes_only_count_as_one(tmp_path):
    """So that a lucky one of them is no reason for what it changes."""
    search = _probed(tmp_path, 0.02, config(64, num_workers=4, **COMPUTED), config(64, num_workers=4))

    assert preferred(search).config == config(64, num_workers=4)


def test_a_change_is_not_made_for_less_than_the_probes_of_one_configuration_differ_by(tmp_path):
    """Half precision is 6 % faster: that counts, but not where two probes of the baseline differ by 25 %."""
    probes = config(64, channels_last=True), config(64, channels_last=True, amp_dtype="bfloat16")
    computing = {None: 1.0, "bfloat16": 0.94, "float16": 1.0}
    machine = {
        "fixed_seconds": dict.fromkeys(computing, 0.0), "channels_last_factor": dict.fromkeys(computing, 0.5),
        "per_sample_seconds": {name: 0.01 * factor for name, factor in computing.items()}, "optimizer_seconds": 0.0,
    }  # fmt: skip
    quiet, noisy = (_probed(tmp_path / name, 0.0, *probes, **machine) for name in ("quiet", "noisy"))
    _slow_down(noisy, 1.25)

    assert preferred(quiet).config == probes[1]
    assert preferred(noisy).config == probes[0]


def _slow_down(search, factor):
    """Probe the baseline once more, so many times slower."""
    launcher = search.launcher
    launcher.machine = dataclasses.replace(
        launcher.machine, per_sample_seconds={k: factor * v for k, v in launcher.machine.per_sample_seconds.items()}
    )
    probe_with_retry(search, search.request.baseline, "reference")


def test_what_by_its_own_probes_differs_by_more_than_noise_is_not_idle(tmp_path):
    """Two workers with nhwc at 40 samples/s do not make two workers slower."""
    search = _probed(tmp_path, 0.02, config(64, num_workers=4, **COMPUTED), config(64, num_workers=4))
    scores = scores_without_idle_changes(search)
    assert list(scores) == [search.request.baseline, config(64, num_workers=4)]

    search.launcher.machine = dataclasses.replace(search.launcher.machine, sample_loading_seconds=0.04)
    probe_with_retry(search, config(64, num_workers=4, channels_last=True), "search")

    assert set(scores_without_idle_changes(search)) == {*scores, config(64, num_workers=4, channels_last=True)}
    assert scores_without_idle_changes(search)[config(64, num_workers=4)] == scores[config(64, num_workers=4)]


@pytest.mark.parametrize(
    ("known", "cut_short", "is_idle"), [(None, False, True), (None, True, False), (0.02, False, False)]
)
def test_a_window_of_too_few_steps_does_not_show_a_difference(tmp_path, monkeypatch, known, cut_short, is_idle):
    """As seen: eight workers alone did 563 samples/s in a window of three rounds, and 668 with two idle changes."""
    found = config(64, num_workers=4, **COMPUTED)
    search = _probed(tmp_path, 0.02, found)
    measure = search.launcher._measure
    rough = {"relative_half_width": known, "cut_short": cut_short}
    monkeypatch.setattr(search.launcher, "_measure", lambda *asked: msgspec.structs.replace(measure(*asked), **rough))
    search.launcher.machine = dataclasses.replace(search.launcher.machine, sample_loading_seconds=0.025)
    probe_with_retry(search, config(64, num_workers=4), "search")

    scores = scores_without_idle_changes(search)

    assert (found not in scores) is is_idle


def test_a_configuration_without_idle_changes_is_probed_before_it_is_taken(tmp_path):
    search = _probed(tmp_path, 0.02, config(64, num_workers=4, **COMPUTED))

    assert simpler(search) == config(64, num_workers=4)


def test_a_micro_batch_between_those_of_the_space_may_be_preferred(tmp_path):
    """The refinement probes it; the space has powers of two."""
    request = study_request(goal=Goal(global_batch=None))
    search = context(tmp_path, FakeLauncher(machine=Machine()), request=request)
    search = dataclasses.replace(search, space=space(Goal(global_batch=None)))
    for one in (request.baseline, config(96, num_workers=4), config(64, num_workers=4)):
        probe_with_retry(search, one, "search" if one != request.baseline else "baseline")

    assert obstacle(search, config(96, num_workers=4)) is None
    assert "batch_size is 9999" in obstacle(search, config(9999, num_workers=4)).text


def test_what_the_windows_of_two_probes_do_not_tell_apart_is_no_reason_for_a_change():
    def probed(one, rate, width):
        found = measured(rate)
        found = msgspec.structs.replace(
            found, measurement=msgspec.structs.replace(found.measurement, relative_half_width=width)
        )
        probe = trial(found, 0, "search", **one.values)
        return ConfigSummary(config=one, found=rate, trials=(probe,))

    few, many = config(64, num_workers=2), config(64, num_workers=2, amp_dtype="bfloat16")

    assert simplest([probed(many, 129.0, 0.01), probed(few, 105.0, 0.01)], study_request(), 0.03).config == many
    assert simplest([probed(many, 129.0, 0.45), probed(few, 105.0, 0.45)], study_request(), 0.03).config == few


ON_A_CPU = space(on=environment(device="cpu", capability=None))


def test_what_is_confirmed_alone_sets_no_environment_variable(tmp_path):
    search = _probed(tmp_path, 0.0001, config(64, num_workers=4, omp_wait_policy="passive"))
    search = dataclasses.replace(search, space=ON_A_CPU)

    assert preferred(search) is None
    assert simpler(search) == config(64, num_workers=4)


def _faulting(tmp_path, *probes):
    """A search on a CPU after these probes: configuration, rate, and the share of its steps that page faults took."""
    trials = []
    for number, (one, rate, share) in enumerate(probes):
        ran = measured(rate)
        faults = round(share * sum(ran.measurement.step_seconds) / FAULT_SECONDS)
        counted = msgspec.structs.replace(ran.measurement, page_faults=faults)
        probe = msgspec.structs.replace(ran, measurement=counted)
        trials.append(trial(probe, number, "search" if number else "baseline", **one.values))
    on = environment(device="cpu", capability=None, mallocs=("glibc",))
    return dataclasses.replace(context(tmp_path, trials=trials), space=space(of=facts(space={}), on=on))


HALF, KEPT = config(64, amp_dtype="bfloat16"), config(64, amp_dtype="bfloat16", malloc="glibc")


@pytest.mark.parametrize(
    ("often", "lucky", "kept_rate", "first"),
    [
        (0.3, 0.0, 200.0, KEPT),  # who had no faults was lucky: page faults take 15 % in the mean
        (0.3, 0.0, 150.0, HALF),  # slower by more than that
        (0.02, 0.0, 200.0, HALF),  # faults take next to nothing
        (0.08, 0.09, 208.0, KEPT),  # 8 % by what was counted, 1.5 % by two probes: as seen with masked_lm
        (0.06, 0.07, 190.0, HALF),  # 8 % slower by two probes: faults that take 6 % do not outweigh it
    ],
)
def test_a_process_that_happened_to_have_few_page_faults_is_not_taken_for_one_without(
    tmp_path, often, lucky, kept_rate, first
):
    search = _faulting(tmp_path, (config(64), 100.0, often), (HALF, 205.0, lucky), (KEPT, kept_rate, 0.0))

    assert preferred(search).config == first


@pytest.mark.parametrize(
    ("own", "kept"),
    [
        (0.34, 0.0),  # it had more faults than most, and was as fast all the same
        (0.0, 0.28),  # keeping memory spares none: files that are mapped have such faults, too
    ],
)
def test_what_page_faults_do_not_explain_is_no_luck(tmp_path, own, kept):
    search = _faulting(tmp_path, (config(64), 100.0, 0.3), (HALF, 205.0, own), (KEPT, 200.0, kept))

    assert preferred(search).config == HALF


OTHER = config(32, gradient_accumulation_steps=2, malloc="glibc")  # no probe differs from it in malloc alone


@pytest.mark.parametrize(
    ("faults", "other", "first"),
    [
        (0.09, OTHER, KEPT),
        (0.0, OTHER, KEPT),  # by luck: those of others took 8 %
        (0.09, config(32, gradient_accumulation_steps=2), HALF),  # whether keeping memory spares any is not known
    ],
)
def test_if_no_two_probes_differ_in_it_alone_counted_page_faults_decide_about_malloc(tmp_path, faults, other, first):
    """As seen with `char_transformer`: five probes, and only those of larger batches kept memory."""
    kept = 0.0 if other == OTHER else 0.08
    third = config(32, gradient_accumulation_steps=2, num_workers=1)
    probes = (config(64), 100.0, 0.16), (other, 90.0, kept), (third, 80.0, 0.16), (HALF, 205.0, faults)

    assert preferred(_faulting(tmp_path, *probes)).config == first


def test_a_pair_that_is_slower_than_the_baseline_says_nothing_of_malloc_elsewhere(tmp_path):
    small = config(32, gradient_accumulation_steps=2)
    probes = (config(64), 100.0, 0.1), (small, 80.0, 0.1), (OTHER, 81.0, 0.0), (HALF, 205.0, 0.1)

    assert preferred(_faulting(tmp_path, *probes)).config == KEPT


def test_only_a_malloc_that_was_probed_is_expected_to_spare_page_faults(tmp_path):
    search = _faulting(tmp_path, (config(64), 100.0, 0.1), (OTHER, 90.0, 0.0), (HALF, 205.0, 0.1))
    on = environment(device="cpu", capability=None, mallocs=("jemalloc", "glibc"))

    assert preferred(dataclasses.replace(search, space=space(of=facts(space={}), on=on))).config == KEPT


def test_nothing_that_is_slower_than_the_baseline_is_taken_for_the_luck_of_another(tmp_path):
    search = _faulting(tmp_path, (config(64), 100.0, 1.0), (HALF, 120.0, 0.0), (KEPT, 99.0, 0.0))

    assert preferred(search).config == HALF


def test_without_counted_faults_a_malloc_is_an_environment_variable_like_any_other(tmp_path):
    search = _faulting(tmp_path, (config(64), 100.0, 0.0), (KEPT, 200.0, 0.0))

    assert preferred(search) is None
    assert simpler(search) == HALF


def test_an_environment_variable_that_is_the_only_change_is_raced(tmp_path):
    asleep = config(64, omp_wait_policy="passive", amp_dtype="bfloat16")
    search = _probed(tmp_path, 0.0001, asleep)
    baseline = config(64, amp_dtype="bfloat16")
    search = dataclasses.replace(search, space=ON_A_CPU, request=study_request(baseline=baseline))

    assert preferred(search).config == asleep


class Curve:
    """A sampler whose model knows the curve over batches."""

    def __init__(self, **expected):
        self._expected = {int(batch.removeprefix("of_")): rate for batch, rate in expected.items()}

    def expected(self, study, configs):
        return [
            (one, Prediction(samples_per_second=rate, low=rate, high=rate, memory_share=0.1, fits=1.0))
            for one in configs
            for rate in [self._expected[one.batch_size]]
        ]


def _free(tmp_path, probes, **options):
    asked = study_request(goal=Goal(), baseline=config(32))
    search = context(tmp_path, request=asked, trials=probes)
    return dataclasses.replace(search, space=space(Goal(), asked.baseline), **options)


def test_where_batches_are_free_a_lucky_probe_is_not_taken_for_the_knee(tmp_path):
    rates = {32: 60.0, 64: 100.0, 128: 92.0, 256: 101.0}
    probes = [trial(measured(rate), n, "search", batch_size=batch) for n, (batch, rate) in enumerate(rates.items())]

    known = _free(tmp_path, probes, sampler=Curve(of_32=60.0, of_64=80.0, of_128=93.0, of_256=100.0))
    unknown = dataclasses.replace(known, sampler=NoModel())

    assert preferred(known).config.batch_size == 256
    assert preferred(unknown).config.batch_size == 64


@pytest.mark.parametrize(("rate", "batch"), [(239.0, 32), (200.0, 128)])
def test_no_curve_takes_the_baseline_s_global_batch_from_a_probe_that_was_as_fast(tmp_path, rate, batch):
    """A language model at 32 was as fast as at 128 by its probe, and its curve expected a tenth less of it."""
    probes = [
        trial(measured(160.0), 0, "baseline", batch_size=32),
        trial(measured(244.0), 1, "search", batch_size=128, amp_dtype="bfloat16"),
        trial(measured(rate), 2, "search", batch_size=32, amp_dtype="bfloat16"),
    ]

    search = _free(tmp_path, probes, sampler=Curve(of_32=200.0, of_128=240.0))

    assert preferred(search).config == config(batch, amp_dtype="bfloat16")
