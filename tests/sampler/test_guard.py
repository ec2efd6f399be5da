"""The guard: nothing twice, nothing hopeless, and nothing refused without a reason."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from autotune.core.records import Config, Goal
from autotune.core.results import Failure, MemoryPeak, Outcome, Trial
from autotune.knobs.declared import declaration, declaring
from autotune.sampler.guard import Guard
from tests.worlds import GIB, config, failed, measured, space

HELD = space()
FREE = space(Goal(), config(batch_size=64))
ARM = ("amp_dtype", "channels_last")
anywhere = st.sampled_from(FREE.configs)


def _learned(made, *pairs, over_limit=False):
    guard = Guard(made)
    for number, (where, result) in enumerate(pairs):
        guard.learn(Trial(number=number, purpose="search", config=where, result=result), over_limit)
    return guard


def _arm(where):
    return tuple(where[name] for name in ARM)


def test_a_new_guard_admits_the_whole_space():
    assert Guard(HELD).remaining() == tuple(HELD.configs)


@pytest.mark.parametrize("result", [measured(), failed(Outcome.UNSTABLE), failed(Outcome.TIMEOUT)])
def test_nothing_is_probed_twice_and_nothing_else_is_concluded(result):
    tried = HELD.configs[7]

    guard = _learned(HELD, (tried, result))

    assert not guard.admits(tried)
    assert set(guard.remaining()) == set(HELD.configs) - {tried}


def test_an_out_of_memory_rules_out_larger_batches_of_its_arm_whatever_the_workers():
    oom = config(batch_size=128, amp_dtype="bfloat16", num_workers=8)

    guard = _learned(FREE, (oom, failed()))

    assert not guard.admits(config(batch_size=256, amp_dtype="bfloat16"))
    assert not guard.admits(config(batch_size=128, amp_dtype="bfloat16", num_workers=0))
    assert guard.admits(config(batch_size=64, amp_dtype="bfloat16", num_workers=8))


def test_an_answer_holds_until_another_out_of_memory():
    guard, asked = Guard(FREE), config(batch_size=128)
    larger, smaller = (_oom(number, batch) for number, batch in enumerate((256, 64)))

    answers = [guard.admits(asked)]
    for one in (larger, smaller):
        guard.learn(one)
        answers.append(guard.admits(asked))

    assert answers == [True, True, False]
    assert asked not in guard.remaining()


def _oom(number, batch):
    return Trial(number=number, purpose="search", config=config(batch_size=batch), result=failed())


@pytest.mark.parametrize("other", [{"amp_dtype": None}, {"amp_dtype": "float16"}, {"channels_last": True}])
def test_an_out_of_memory_says_nothing_about_another_dtype_or_layout(other):
    guard = _learned(FREE, (config(batch_size=128, amp_dtype="bfloat16"), failed()))

    assert guard.admits(config(**{"batch_size": 256, "amp_dtype": "bfloat16", **other}))


def test_accumulation_neither_saves_nor_costs_memory():
    guard = _learned(FREE, (config(batch_size=128, gradient_accumulation_steps=4), failed()))

    assert not guard.admits(config(batch_size=128, gradient_accumulation_steps=1))
    assert not guard.admits(config(batch_size=256, gradient_accumulation_steps=8))


@pytest.mark.parametrize("outcome", [Outcome.OOM_HOST, Outcome.OOM_SHM])
def test_on_the_host_fewer_workers_may_fit(outcome):
    guard = _learned(FREE, (config(batch_size=128, num_workers=4), failed(outcome)))

    assert guard.admits(config(batch_size=256, num_workers=2))
    assert not guard.admits(config(batch_size=128, num_workers=8))
    assert not guard.admits(config(batch_size=256, num_workers=4))


def test_too_large_for_a_kernel_is_a_matter_of_the_device():
    guard = _learned(FREE, (config(batch_size=128, num_workers=4), failed(Outcome.TOO_LARGE)))

    assert not guard.admits(config(batch_size=128, num_workers=0))


CAST = replace(
    failed(Outcome.USER_ERROR),
    failure=Failure(
        phase="warm-up", message="Float and BFloat16", evidence="RuntimeError", user_frame="model.py:19 in f"
    ),
)


def _failing(*wheres, ran=(), made=FREE, error=CAST):
    return _learned(
        made,
        (config(batch_size=64), measured()),
        *((one, measured()) for one in ran),
        *((one, error) for one in wheres),
    )


def test_a_value_that_fails_with_one_error_and_never_ran_is_refused_everywhere():
    guard = _failing(
        config(batch_size=128, amp_dtype="bfloat16"),
        config(batch_size=64, amp_dtype="bfloat16", num_workers=2),
    )

    assert guard.failing.refused_alone == {("amp_dtype", "bfloat16")}
    assert guard.failing.cause(CAST.failure) == {"amp_dtype": "bfloat16"}
    assert not guard.admits(config(batch_size=256, amp_dtype="bfloat16", num_workers=8))
    assert guard.admits(config(batch_size=128, num_workers=2))


def test_one_error_refuses_nothing_else():
    assert _failing(config(batch_size=128, amp_dtype="bfloat16")).failing.refused_alone == set()


@pytest.mark.parametrize(("frame", "message"), [("model.py:31 in g", "Float and BFloat16"), ("model.py:19 in f", "x")])
def test_different_errors_are_not_one(frame, message):
    other = replace(CAST, failure=replace(CAST.failure, user_frame=frame, message=message))
    guard = _failing(config(batch_size=64, amp_dtype="bfloat16"))
    guard.learn(Trial(number=9, purpose="search", config=config(batch_size=128, amp_dtype="bfloat16"), result=other))

    assert guard.failing.refused_alone == set()


def test_errors_that_differ_in_a_number_are_one():
    guard = _failing(config(batch_size=64, amp_dtype="bfloat16"))
    other = replace(CAST, failure=replace(CAST.failure, message="Float and BFloat17"))
    guard.learn(Trial(number=9, purpose="search", config=config(batch_size=128, amp_dtype="bfloat16"), result=other))

    assert guard.failing.refused_alone == {("amp_dtype", "bfloat16")}


def test_batches_that_fail_refuse_no_other_batch():
    guard = _failing(config(batch_size=256), config(batch_size=512))

    assert all(guard.admits(config(batch_size=size)) for size in (32, 128, 1024))


def test_values_that_fail_together_are_refused_together_until_one_fails_without_the_other():
    both = {"amp_dtype": "bfloat16", "num_workers": 2}
    guard = _failing(config(batch_size=64, **both), config(batch_size=128, **both))

    assert guard.failing.refused_alone == set()
    assert not guard.admits(config(batch_size=32, **both))
    assert guard.admits(config(batch_size=64, amp_dtype="bfloat16"))
    assert guard.admits(config(batch_size=64, num_workers=2))

    guard.learn(Trial(number=9, purpose="search", config=config(batch_size=64, amp_dtype="bfloat16"), result=CAST))
    assert guard.failing.refused_alone == {("amp_dtype", "bfloat16")}


def test_what_ran_is_no_cause():
    """Neither does one value that ran make the other one the cause: they may fail together only."""
    both = {"amp_dtype": "bfloat16", "num_workers": 2}
    failing = config(batch_size=64, **both), config(batch_size=128, **both)

    assert _failing(*failing, ran=[config(batch_size=32, **both)]).admits(config(batch_size=256, **both))
    assert _failing(*failing, ran=[config(batch_size=64, amp_dtype="bfloat16")]).failing.refused_alone == set()


def test_a_training_that_ended_early_is_no_error():
    early = replace(CAST, failure=replace(CAST.failure, message="train.py ended its training before it was measured"))
    guard = _failing(*(config(batch_size=size, amp_dtype="bfloat16") for size in (64, 128)), error=early)

    assert guard.failing.refused_alone == set()


def test_a_probe_over_the_limit_counts_like_an_out_of_memory():
    guard = _learned(FREE, (config(batch_size=128), measured()), over_limit=True)

    assert not guard.admits(config(batch_size=256))
    assert not guard.admits(config(batch_size=128, num_workers=8))
    assert guard.admits(config(batch_size=64))


def test_over_the_limit_without_an_accelerator_is_a_matter_of_the_host():
    memory = MemoryPeak(process_bytes=GIB)
    on_cpu = replace(measured(), measurement=replace(measured().measurement, memory=memory))

    guard = _learned(FREE, (config(batch_size=128, num_workers=4), on_cpu), over_limit=True)

    assert guard.admits(config(batch_size=128, num_workers=2))
    assert not guard.admits(config(batch_size=128, num_workers=8))


@pytest.mark.parametrize("outcome", [Outcome.CRASHED, Outcome.DEVICE_FAULT, Outcome.COMPILE_FAILED])
def test_one_accident_is_forgiven_and_two_are_not(outcome):
    tried = HELD.configs[0]

    assert _learned(HELD, (tried, failed(outcome))).admits(tried)
    assert not _learned(HELD, (tried, failed(outcome)), (tried, failed(outcome))).admits(tried)


def test_a_probe_that_twice_took_the_search_down_is_not_tried_a_third_time():
    poison, other = HELD.configs[:2]
    guard = Guard(HELD)

    guard.note_accident(poison)
    guard.note_accident(other)
    assert guard.admits(poison)
    guard.note_accident(poison)

    assert not guard.admits(poison)
    assert guard.admits(other)


def test_a_crash_and_an_unfinished_probe_are_two_accidents():
    guard = _learned(HELD, (HELD.configs[0], failed(Outcome.CRASHED)))

    guard.note_accident(HELD.configs[0])

    assert not guard.admits(HELD.configs[0])


@settings(deadline=None)  # 40 ms alone, 300 ms on a busy machine
@given(exhausted=st.lists(anywhere, min_size=1, max_size=4))
def test_exactly_what_is_at_or_above_an_out_of_memory_is_refused(exhausted):
    guard = _learned(FREE, *((where, failed()) for where in exhausted))

    refused = set(FREE.configs) - set(guard.remaining())

    hopeless = {
        where
        for where in FREE.configs
        if any(_arm(where) == _arm(oom) and where.batch_size >= oom.batch_size for oom in exhausted)
    }
    assert refused == hopeless


@settings(deadline=None)  # 40 ms alone, 300 ms on a busy machine
@given(exhausted=st.lists(anywhere, min_size=1, max_size=4))
def test_on_the_host_exactly_what_has_no_fewer_workers_and_no_smaller_batch_is_refused(exhausted):
    guard = _learned(FREE, *((where, failed(Outcome.OOM_HOST)) for where in exhausted))

    refused = set(FREE.configs) - set(guard.remaining())

    def _no_less(where, oom):
        fewer = where["num_workers"] < oom["num_workers"] or where.batch_size < oom.batch_size
        return _arm(where) == _arm(oom) and not fewer

    assert refused == {where for where in FREE.configs if any(_no_less(where, oom) for oom in exhausted)}


@pytest.mark.parametrize("values", [[0.25, 0.5, 0.75], ["small", "medium", "large"]])
def test_memory_of_a_declared_knob_grows_with_its_order_whatever_its_values_are(values):
    with declaring(declaration("width", {"values": values, "memory": "grows", "ordered": True})):
        small, medium, large = (Config(values={**config(batch_size=64).values, "width": value}) for value in values)
        guard = Guard(HELD)
        guard.learn(Trial(number=0, purpose="search", config=medium, result=failed()))

        assert guard.admits(small)
        assert not guard.admits(large)


def test_two_batches_ahead_need_more_than_one():
    one, usual = (config(num_workers=2, prefetch_factor=count) for count in (1, None))

    guard = _learned(HELD, (usual, failed(Outcome.OOM_HOST)))

    assert guard.admits(one)
