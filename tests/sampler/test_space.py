"""The space is countable, holds what the user runs today, and keeps what the user said."""

from itertools import product

import pytest

from autotune.core.records import Goal, Limit
from autotune.errors import UsageError
from tests.worlds import config, environment, facts, space

SMALL = facts(dataset_samples=100)


BATCH_NORM = facts(has_batch_norm=True)


def _batches(made):
    return {c.batch_size for c in made.configs}


@pytest.mark.parametrize(
    ("goal", "baseline"),
    [
        (Goal(global_batch=64), config(batch_size=64)),
        (Goal(), config(batch_size=48, num_workers=3, gradient_accumulation_steps=3)),
        (Goal(global_batch=144), config(batch_size=48, num_workers=3, gradient_accumulation_steps=3)),
        (Goal(), config(batch_size=5000)),
        (Goal(tune=("amp_dtype",)), config(batch_size=48, num_workers=3)),
    ],
)
def test_what_is_run_today_is_a_point_of_the_space(goal, baseline):
    assert baseline in space(goal, baseline).configs


def test_an_unusual_baseline_value_takes_its_place_in_the_order():
    made = space(Goal(), config(batch_size=48, num_workers=3))

    assert made.domains["num_workers"] == (0, 1, 2, 3, 4, 8)
    assert 48 in made.domains["batch_size"] and list(made.domains["batch_size"]) == sorted(made.domains["batch_size"])


def test_a_dtype_that_is_run_today_is_searched_even_if_the_machine_would_not_offer_it():
    made = space(baseline=config(batch_size=64, amp_dtype="float16"), on=environment(native_dtypes=()))

    assert made.domains["amp_dtype"] == (None, "float16")


@pytest.mark.parametrize("limits", [{"batch_size": Limit(low=8, high=32)}, {"batch_size": Limit(values=(16, 32))}])
def test_the_users_limit_may_exclude_what_is_run_today(limits):
    made = space(Goal(limits=limits), config(batch_size=64))

    assert 64 not in _batches(made)
    assert _batches(made) >= {16, 32}


def test_the_goals_limit_goes_before_the_targets():
    narrowed = facts(space={"batch_size": Limit(values=(8, 16)), "num_workers": Limit(values=(2,))})

    made = space(Goal(limits={"batch_size": Limit(values=(32,))}), of=narrowed)

    assert made.domains["batch_size"] == (32,)
    assert made.domains["num_workers"] == (2,)


def test_only_the_named_knobs_move():
    baseline = config(batch_size=64, num_workers=3)

    made = space(Goal(tune=("amp_dtype",)), baseline)

    assert set(made.free) == {"amp_dtype"}
    assert {c["num_workers"] for c in made.configs} == {3}
    assert [c["amp_dtype"] for c in made.configs] == [None, "bfloat16", "float16"]


def test_accumulation_makes_up_the_held_global_batch():
    made = space(Goal(global_batch=64))

    assert "gradient_accumulation_steps" not in made.free
    assert {(c.batch_size, c.gradient_accumulation_steps) for c in made.configs} == {(8, 8), (16, 4), (32, 2), (64, 1)}


def test_accumulation_follows_even_where_it_is_not_named_to_be_tuned():
    made = space(Goal(global_batch=64, tune=("batch_size",)))

    assert {c.global_batch_size() for c in made.configs} == {64}
    assert len(made.configs) == 4


def test_the_targets_own_limit_on_the_accumulation_binds_although_it_follows():
    made = space(of=facts(space={"gradient_accumulation_steps": Limit(values=(1, 2))}))

    assert {c.gradient_accumulation_steps for c in made.configs} == {1, 2}


@pytest.mark.parametrize(
    ("goal", "baseline", "why", "nearest"),
    [
        (Goal(global_batch=64), config(batch_size=64), "", config(batch_size=64)),
        (
            Goal(global_batch=256),
            config(batch_size=64),
            "its global batch is 64, and 256 is held",
            config(batch_size=64, gradient_accumulation_steps=4),
        ),
        (
            Goal(limits={"batch_size": Limit(values=(8, 16))}),
            config(batch_size=64),
            "its batch_size is 64, and only 8, 16 may be searched",
            config(batch_size=16),
        ),
        (
            Goal(global_batch=64, limits={"amp_dtype": Limit(values=(None,)), "num_workers": Limit(low=0, high=1)}),
            config(batch_size=64, amp_dtype="bfloat16", num_workers=4),
            "its amp_dtype is bf16, and only fp32 may be searched",
            config(batch_size=64, num_workers=1),
        ),
    ],
)
def test_a_baseline_that_breaks_what_is_held_is_excluded_and_has_a_nearest(goal, baseline, why, nearest):
    made = space(goal, baseline)

    excluded = made.excludes(baseline)
    assert (excluded.text if excluded else "") == why
    assert made.nearest(baseline) == nearest


@pytest.mark.parametrize(("limit", "left"), [(Limit(values=(1, 2)), {32, 64}), (Limit(low=4, high=8), {8, 16})])
def test_a_limit_on_the_accumulation_binds_although_it_follows(limit, left):
    assert _batches(space(Goal(global_batch=64, limits={"gradient_accumulation_steps": limit}))) == left


@pytest.mark.parametrize("held", [32, 100])
def test_a_fixed_batch_that_cannot_make_up_the_global_batch_is_an_error(held):
    with pytest.raises(UsageError, match=rf"batch_size 64 cannot make up .* {held} .*\. It has to divide .*\. Widen"):
        space(Goal(global_batch=held, tune=("amp_dtype",)), config(batch_size=64))


def test_no_optimizer_step_takes_more_than_the_dataset():
    made = space(Goal(), config(batch_size=32), of=SMALL)

    assert max(c.global_batch_size() for c in made.configs) == 64
    assert {c.gradient_accumulation_steps for c in made.configs if c.batch_size == 64} == {1}


def test_every_configuration_is_there_once():
    configs = space(Goal(), config(batch_size=64)).configs

    assert len(configs) == len(set(configs)) == 10 * 3 * 5 * 2


def test_the_same_request_makes_the_same_space_in_the_same_order():
    assert space().configs == space().configs


def test_completing_fills_single_choices_and_derived_values():
    made = space(Goal(global_batch=64, limits={"num_workers": Limit(values=(2,))}))

    completed = made.complete({"batch_size": 16, "amp_dtype": "bfloat16", "channels_last": True})

    expected = config(
        batch_size=16, gradient_accumulation_steps=4, amp_dtype="bfloat16", num_workers=2, channels_last=True
    )
    assert completed == expected


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        (Goal(limits={"batch_size": Limit(low=100, high=101)}), r"batch_size within 100:101\. .*\. Widen --batch"),
        (
            Goal(limits={"batch_size": Limit(values=(128, 256))}),
            r"^The dataset has 100 samples, .* 256\. .* Lower --batch",
        ),
        (
            Goal(limits={"batch_size": Limit(low=128)}),
            r"^The dataset has 100 samples, and no .* 128:\. .* Lower --batch",
        ),
        (
            Goal(global_batch=64, limits={"batch_size": Limit(values=(48,))}),
            r"^No value .* divides the held global batch 64\. .*\. Change --batch",
        ),
        (Goal(limits={"num_workers": Limit(low=9)}), r"num_workers within 9:\. .*\. Widen --workers"),
        (Goal(global_batch=101), r"100 samples, the held global batch is 101\. Not one .*\. Lower --global-batch"),
    ],
)
def test_a_space_with_nothing_in_it_says_what_and_why_and_what_to_do(goal, words):
    with pytest.raises(UsageError, match=words):
        space(goal, config(batch_size=32), of=SMALL)


def test_samples_that_ranks_share_are_told_with_the_share_of_each():
    goal, shared = Goal(limits={"batch_size": Limit(values=(64,))}), facts(dataset_samples=100, ranks=2)

    with pytest.raises(UsageError, match=r"^The dataset has 100 samples, 50 for each of 2 ranks, and no value is left"):
        space(goal, config(batch_size=32), of=shared)


def test_a_free_space_in_which_nothing_fits_the_dataset_is_an_error():
    limits = {"gradient_accumulation_steps": Limit(values=(200,))}

    with pytest.raises(UsageError, match=r"more than the 100 samples .*\. The batch .*\. Lower --batch"):
        space(Goal(limits=limits), config(batch_size=32), of=SMALL)


CPU = environment(device="cpu", usable_cores=2, default_threads=2)


def test_a_single_thread_is_not_probed_once_for_each_way_of_waiting():
    made = space(Goal(tune=("num_threads", "omp_wait_policy", "num_workers")), on=CPU)

    ways = [(c["num_threads"], c["omp_wait_policy"]) for c in made.configs if c["num_workers"] == 2]
    assert ways == [(1, None), (None, None), (None, "passive")]


def test_the_same_count_of_threads_by_another_name_is_the_same_configuration():
    said = config(batch_size=64, num_threads=2)

    made = space(baseline=said, on=CPU)

    assert made.canonical(said) == config(batch_size=64)
    assert made.canonical(said) in made.configs
    assert made.domains["num_threads"] == (1, None)


def test_an_unusual_number_of_threads_takes_its_place_among_those_offered():
    made = space(baseline=config(batch_size=64, num_threads=3), on=CPU)

    assert made.domains["num_threads"] == (1, None, 3)


def test_what_a_sampler_may_propose_decodes_to_a_point_of_the_space():
    made = space(on=CPU)

    for values in product(*made.free.values()):
        assert made.complete(dict(zip(made.free, values, strict=True))) in made.configs


def test_exact_keeps_the_dtype_that_is_run_today_whatever_it_is():
    made = space(Goal(global_batch=64, exact=True), config(batch_size=64, amp_dtype="bfloat16"))

    assert {c["amp_dtype"] for c in made.configs} == {"bfloat16"}
    assert len(_batches(made)) > 1


def test_exact_keeps_the_micro_batch_where_batch_norm_sees_it():
    goal, today = Goal(global_batch=64, exact=True), config(batch_size=16, gradient_accumulation_steps=4)

    assert _batches(space(goal, today, of=BATCH_NORM)) == {16}
    assert len(_batches(space(goal, today))) > 1
    assert len(_batches(space(Goal(global_batch=64), today, of=BATCH_NORM))) > 1


PAIRS, TODAY = facts(is_mean_loss=False), config(batch_size=16, gradient_accumulation_steps=4)


@pytest.mark.parametrize(
    ("goal", "batches"),
    [
        ({"global_batch": 64}, {16}),
        ({"global_batch": 64, "exact": True}, {16}),
        ({"global_batch": 64, "exact": True, "tune": ("batch_size",)}, {16}),
        ({}, {16}),
        ({"global_batch": 128}, {16}),
        ({"global_batch": 32}, {16}),
        ({"global_batch": 8}, {8}),  # smaller than the micro-batch
        ({"global_batch": 64, "limits": {"batch_size": Limit(values=(16, 32))}}, {16, 32}),
        ({"global_batch": 64, "tune": ("batch_size",)}, {8, 16, 32, 64}),
        ({"global_batch": 64, "tune": ("amp_dtype",)}, {16}),
    ],
    ids=str,
)
def test_the_micro_batch_of_a_loss_that_is_no_mean_is_kept_unless_others_are_asked_for(goal, batches):
    assert batches == _batches(space(Goal(**goal), TODAY, of=PAIRS))


def test_without_accumulation_another_global_batch_of_such_a_loss_is_one_micro_batch():
    made = space(Goal(global_batch=32), config(batch_size=64), of=PAIRS)

    assert _batches(made) == {32}


@pytest.mark.parametrize("known", [None, True])
def test_what_earlier_versions_did_not_look_at_holds_nothing(known):
    of = facts(is_mean_loss=known)

    assert len(_batches(space(Goal(global_batch=64), TODAY, of=of))) > 1
    assert len(_batches(space(Goal(global_batch=64, exact=True), TODAY, of=of))) > 1


BF16, HELD_64 = {"amp_dtype": Limit(values=("bfloat16",))}, {"global_batch": 64}


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ({"exact": True, "limits": BF16}, r"keeps amp_dtype at the baseline's fp32, and .* bfloat16 exclude"),
        (
            {"exact": True, "limits": {"batch_size": Limit(low=128)}},
            r"keeps batch_size at the baseline's 64, and 128: exclude it",
        ),
        (
            {"limits": {"num_workers": Limit(values=(1, 2))}, "tune": ("batch_size",)},
            r"--tune leaves num_workers out, and the values 1, 2 .* Name one with --workers",
        ),
        (  # what is exact is not given up for a knob that is held without being tuned
            {"limits": BF16, "tune": ("num_workers",), "exact": True, **HELD_64},
            "--exact keeps amp_dtype at the baseline's fp32",
        ),
        (
            {"limits": {"batch_size": Limit(values=(128,))}, "tune": ("amp_dtype",), **HELD_64},
            r"No value is left for batch_size .* divides the held global batch 64",
        ),
    ],
)
def test_wishes_that_exclude_each_other_are_an_error_that_names_both(goal, said):
    with pytest.raises(UsageError, match=said):
        space(Goal(**goal), config(batch_size=64), of=BATCH_NORM)


def test_exact_allows_a_limit_that_today_is_within():
    limits = {"amp_dtype": Limit(values=(None, "bfloat16"))}

    assert {c["amp_dtype"] for c in space(Goal(global_batch=64, exact=True, limits=limits)).configs} == {None}


@pytest.mark.parametrize(("samples", "largest"), [(1, 1), (2, 2), (3, 2), (5, 4), (7, 4), (11, 8)])
def test_a_dataset_of_a_few_samples_leaves_a_batch(samples, largest):
    made = space(Goal(), config(batch_size=samples), of=facts(dataset_samples=samples))

    assert {size for size in _batches(made) if size & (size - 1) == 0} == {largest}


def test_a_knob_that_is_held_at_another_value_is_held_there_although_it_is_not_tuned():
    held = {"amp_dtype": Limit(values=("bfloat16",))}

    made = space(Goal(limits=held, tune=("batch_size",), global_batch=64), config(batch_size=64))

    assert {one["amp_dtype"] for one in made.configs} == {"bfloat16"}
