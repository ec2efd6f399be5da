"""The knee of a free global batch: what rounds and the model say of it, and who is confirmed for it."""

import math

import pytest
from msgspec.structs import replace

from autotune.answer.choice import differ_in_batch
from autotune.answer.recommend import StudyFacts, recommend
from autotune.core.codes import Code
from autotune.core.records import Config, Goal, Limit
from autotune.study.valid_probes import Judged
from autotune.study.view import load_view
from autotune.testing import FACTS, FakeLauncher, Machine
from autotune.testing.machine import ENVIRONMENT
from autotune.tuning.descent import smaller
from tests.answer.test_choice import _candidate
from tests.worlds import config, good, measured, searched, study_request, trial

BASE = config(batch_size=32)
FREE = study_request(goal=Goal(), baseline=BASE, baseline_assumed=True)
SLOW = _candidate(BASE, (50, 51, 49))


def _answer(*candidates):
    return recommend([SLOW, *candidates], FREE, StudyFacts(study="s", probes=9, seconds=1.0))


def _batch(size, rates, **options):
    return _candidate(config(batch_size=size), rates, **options)


def test_the_smallest_batch_that_the_rounds_show_fast_enough_is_recommended():
    answer = _answer(_batch(512, (100, 100.1, 99.9)), _batch(256, (96, 96.1, 95.9)), _batch(128, (90, 90.1, 89.9)))

    assert answer.global_batch_size == 256


def test_what_is_open_goes_to_the_larger_batch_and_the_answer_says_so():
    answer = _answer(_batch(512, (100, 110, 92)), _batch(256, (97, 88, 104)))

    assert answer.global_batch_size == 512
    said = next(one for one in answer.reasons if one.code is Code.GLOBAL_BATCH_UNDECLARED)
    assert "and it is open whether 256 is enough; hold yours" in said.text


@pytest.mark.parametrize(
    ("larger", "smaller", "is_open"),
    [((100, 110, 92), (86, 80, 98), True), ((100, 100.1, 99.9), (86, 86.1, 85.9), False)],
    ids=["not surely", "surely"],
)
def test_a_smaller_batch_that_is_not_surely_too_slow_is_called_open(larger, smaller, is_open):
    """As seen: "1024 reaches 100% of the fastest", and 512 was 14 % slower, not significantly."""
    answer = _answer(_batch(512, larger), _batch(256, smaller))

    assert answer.global_batch_size == 512
    said = next(one for one in answer.reasons if one.code is Code.GLOBAL_BATCH_UNDECLARED)
    assert ("open whether 256 is enough" in said.text) is is_open


@pytest.mark.parametrize(
    ("raced", "code"), [(False, Code.BASELINE_BATCH_ALONE), (True, Code.NOT_FASTER_WITH_BASELINE_BATCH)]
)
def test_whether_anything_was_confirmed_with_the_assumed_batch_is_told(raced, code):
    """As seen: "nothing that was confirmed is faster" with 32, where nothing but the baseline was confirmed with it."""
    rivals = [_candidate(config(batch_size=32, num_workers=2), (50, 50, 50))] if raced else []

    answer = _answer(_batch(256, (100, 100.1, 99.9)), *rivals)

    told = {Code.BASELINE_BATCH_ALONE, Code.NOT_FASTER_WITH_BASELINE_BATCH} & {one.code for one in answer.reasons}
    assert told == {code}


def test_of_a_default_that_is_kept_because_nothing_could_be_decided_no_share_is_told():
    wide = _answer(_batch(256, (700, 20, 900)))

    assert wide.undecided is not None
    assert wide.params == BASE.values
    assert Code.GLOBAL_BATCH_UNDECLARED not in {one.code for one in wide.reasons}


def test_what_else_is_faster_with_the_same_batch_is_no_matter_of_the_batch():
    answer = _answer(_batch(256, (97, 97.1, 96.9)), _candidate(config(batch_size=256, num_workers=2), (98, 98.1, 97.9)))

    assert answer.params == config(batch_size=256).values
    said = next(one for one in answer.reasons if one.code is Code.GLOBAL_BATCH_UNDECLARED)
    assert said.numbers["share"] == 1


def test_the_model_of_all_probes_counts_beside_few_rounds():
    rounds = (_batch(512, (100, 105), expected=103.0), _batch(256, (96, 99), expected=90.0))
    alone = tuple(_batch(one.config.batch_size, one.rates) for one in rounds)

    assert _answer(*alone).global_batch_size == 256
    assert _answer(*rounds).global_batch_size == 512


def test_a_knee_that_no_round_tells_from_a_baseline_below_it_gives_way_to_what_is_measurably_faster():
    """Not two steps that cost nothing each: 4 % from the fastest to the knee, 3 % that nobody can tell to the baseline.

    The fastest is 8 % faster than the baseline, measurably.
    """
    slow = _candidate(BASE, (1014, 1031, 1012, 967, 1009))
    knee = _batch(512, (1052, 1045, 1039, 1072, 1018))
    fastest = _batch(4096, (1062, 1076, 1096, 1095, 1099))

    answer = recommend([slow, knee, fastest], FREE, StudyFacts(study="s", probes=9, seconds=1.0))

    assert answer.global_batch_size == 4096


def test_rounds_that_contradict_the_model_count_for_more():
    """A loader that slows beyond a limit, which no curve of the model does."""
    slower = (_batch(1024, (76, 77, 75), expected=100.0), _batch(512, (99, 101, 100), expected=94.0))

    assert _answer(*slower).global_batch_size == 512


def _probe(number, size, rate):
    return Judged(trial(measured(rate, samples=size), number, batch_size=size), good(rate))


def test_above_a_batch_that_is_fast_enough_within_noise_alone_the_next_larger_is_probed():
    sizes = (32, 64, 128, 256, 512, 1024)
    every = [config(batch_size=size) for size in sizes]
    judged = [_probe(n, *one) for n, one in enumerate([(32, 50.0), (64, 80.0), (128, 94.0), (1024, 100.0)])]

    assert smaller(judged, every, FREE, slack=0.05) == config(batch_size=256)
    rest = [one for one in every if one.batch_size != 256]
    assert smaller([*judged, _probe(4, 256, 95.1)], rest, FREE, slack=0.05) is None


def test_a_batch_that_is_fast_enough_beyond_noise_needs_none_above_it():
    every = [config(batch_size=size) for size in (32, 64, 128, 256)]
    judged = [_probe(n, *one) for n, one in enumerate([(32, 50.0), (64, 98.0), (256, 100.0)])]

    assert smaller(judged, every, FREE, slack=0.05) is None


def test_finalists_differ_in_their_batch_only_where_it_is_free():
    two = [config(batch_size=64), config(batch_size=128)]

    assert differ_in_batch(two, FREE)
    assert not differ_in_batch([BASE, two[0]], FREE)
    assert not differ_in_batch(two, study_request())


class Loading(Machine):
    """Loads more slowly beyond 512 samples, as `benchmarks/targets/tabular.py` does."""

    def loading_seconds(self, config):
        slower = 1 + max(0.0, 1 - 512 / config.batch_size)
        return config.batch_size * self.sample_loading_seconds * (4 if config.values.get("num_workers") else slower)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_minute_races_the_neighbours_of_the_knee_and_no_cliff_is_recommended(tmp_path, seed):
    machine = Loading(
        fixed_seconds={None: 2.6e-4}, per_sample_seconds={None: 8e-7}, per_sample_bytes={None: 1e4}, cores=2,
        sample_loading_seconds=3.6e-6, optimizer_seconds=0.0, noise_between_probes=0.05,
    )  # fmt: skip
    held = {name: Limit(values=(FACTS.space[name].values[0],)) for name in FACTS.space}
    held |= {"amp_dtype": Limit(values=(None,)), "channels_last": Limit(values=(False,))}
    there = replace(ENVIRONMENT, device="cpu", usable_cores=2, default_threads=2, capability=None, native_dtypes=())
    launcher = FakeLauncher(
        machine=machine, facts=replace(FACTS, space=held, dataset_samples=65536), environment=there, seed=seed,
        starting_seconds={"start": 1.5},
    )  # fmt: skip

    answer = searched(tmp_path, launcher, sampler="structured", time_budget_seconds=60, seed=seed)

    rates = {size: launcher.throughput(config(batch_size=size, num_workers=0)) for size in (256, 512, 1024)}
    assert launcher.throughput(Config(values=answer.params)) >= 0.9 * max(rates.values())
    confirmed = {one.config.batch_size for one in load_view(tmp_path).trials if one.purpose == "confirm"} - {32}
    assert len(confirmed) == 3
    assert all(math.log2(one).is_integer() for one in confirmed)
    assert launcher.clock() <= 1.1 * 60
