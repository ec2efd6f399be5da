"""Which trades of time for memory or cores cannot win, and are decided without a probe of them."""

import pytest
from msgspec.structs import replace

from autotune.context.trades import TradeExclusion, Trades
from autotune.core.records import Goal, Limit, OptimizerFacts
from autotune.core.results import IsolatedTiming
from autotune.sampler.guard import Guard
from autotune.study.history import History
from tests.worlds import config, environment, facts, failed, measured, space, study_request, trial

DEEP = facts(checkpointable_blocks=12)
FREE = Goal()


def _world(*trials, goal=FREE, fits_up_to=0, searched=None):
    """The rule, and the history that it looks at; batches up to `fits_up_to` are predicted to fit without a trade."""
    here = searched or space(goal=goal, baseline=config(batch_size=64), of=DEEP)
    guard, history = Guard(here), History(study_request(goal=goal))
    rule = Trades(here, history, guard, Predicted(fits_up_to))
    for one in trials:
        _add(history, guard, one)
    return rule, history, guard


class Predicted:
    """A prediction of memory that knows but one thing."""

    def __init__(self, fits_up_to):
        self._fits_up_to = fits_up_to

    def expects_to_fit(self, asked):
        return asked.batch_size <= self._fits_up_to


def _add(history, guard, one):
    history.add(one)
    guard.learn(one)


def _ran(number, batch, seconds, **values):
    return trial(measured(batch / seconds), number=number, batch_size=batch, **values)


def _recomputed(batch, **values):
    return config(batch_size=batch, activation_checkpointing=True, **values)


def test_where_a_batch_is_foretold_to_fit_a_trade_can_only_be_slower():
    rule, _, _ = _world(fits_up_to=64)

    assert rule.why(_recomputed(64)) is TradeExclusion.FITS
    assert not rule.admits(_recomputed(64))
    assert rule.admits(_recomputed(128)) and rule.admits(config(batch_size=64))


def test_a_batch_that_was_seen_to_fit_needs_no_prediction():
    rule, _, _ = _world(_ran(0, 128, 1.0))

    assert rule.why(_recomputed(64)) is TradeExclusion.FITS
    assert rule.why(_recomputed(256)) is None
    assert rule.why(_recomputed(64, amp_dtype="bfloat16")) is None  # another arm


def test_a_batch_between_those_of_the_space_may_have_a_trade_that_is_not_in_it():
    """Refinement proposes such a one, where the baseline has a trade that the user's limits leave out."""
    goal = Goal(limits={"activation_checkpointing": Limit(values=(False, "every_second"))})
    here = space(goal=goal, baseline=config(batch_size=64, activation_checkpointing=True), of=DEEP)
    rule = Trades(here, History(study_request(goal=goal)), Guard(here), Predicted(fits_up_to=64))

    assert rule.why(_recomputed(56)) is TradeExclusion.FITS


def test_what_was_left_out_comes_back_where_the_prediction_was_wrong():
    rule, history, guard = _world(fits_up_to=256)
    assert not rule.admits(_recomputed(256))

    _add(history, guard, trial(failed(), number=1, batch_size=128))

    assert rule.admits(_recomputed(256)) and rule.admits(_recomputed(128))
    assert not rule.admits(_recomputed(64))


LADDER = (False, "every_third", "every_second", "selective", True)


class PredictedEach(Predicted):
    """A prediction that knows up to which batch each policy fits."""

    def __init__(self, **fits_up_to):
        self._each = fits_up_to

    def expects_to_fit(self, asked):
        return asked.batch_size <= self._each[str(asked["activation_checkpointing"])]


def _policies(rule, batch):
    asked = (config(batch_size=batch, activation_checkpointing=one) for one in LADDER)
    return [one["activation_checkpointing"] for one in asked if rule.admits(one)]


def test_of_a_ladder_what_fits_a_batch_is_left_but_for_what_surely_takes_longer():
    each = {"False": 64, "every_third": 128, "every_second": 256, "selective": 256, "True": 512}
    here = space(goal=FREE, baseline=config(batch_size=64), of=DEEP)
    rule = Trades(here, History(study_request(goal=FREE)), Guard(here), PredictedEach(**each))

    assert _policies(rule, 64) == [False]
    # Whether selective or some whole blocks are faster depends on the model; more whole blocks are slower in any.
    assert _policies(rule, 128) == [False, "every_third", "selective"]
    assert _policies(rule, 256) == [False, "every_third", "every_second", "selective"]
    assert True in _policies(rule, 512)


def test_an_overflow_of_one_policy_is_one_of_all_that_recompute_less():
    rule, history, guard = _world()

    _add(history, guard, trial(failed(), number=1, batch_size=128, activation_checkpointing="every_second"))

    assert _policies(rule, 256) == ["every_third", "selective", True]
    assert _policies(rule, 64) == list(LADDER)


def test_a_policy_that_was_seen_to_fit_rules_out_all_that_recompute_more():
    rule, _, _ = _world(_ran(0, 128, 1.0, activation_checkpointing="every_second"), trial(failed(), 1, batch_size=128))

    assert True not in _policies(rule, 128)
    assert True in _policies(rule, 256)


@pytest.mark.parametrize(
    ("fixed", "why"),
    [
        (0.1, TradeExclusion.SATURATED),  # half of full speed at batch 10: 64 is nearly all of it
        (1.0, None),  # at batch 100: a larger batch may gain more than recomputing costs
        (0.0, TradeExclusion.SATURATED),
    ],
)
def test_larger_batches_are_worth_a_trade_only_while_what_is_fixed_weighs(fixed, why):
    rule, _, _ = _world(_ran(0, 16, fixed + 0.16), _ran(1, 64, fixed + 0.64), fits_up_to=64)

    assert rule.why(_recomputed(512)) is why


@pytest.mark.parametrize(("held", "why"), [(None, TradeExclusion.SATURATED), (1024, None)])
def test_what_grows_with_a_held_global_batch_may_be_the_optimizer_s_share(held, why):
    """Half of full speed at batch 110, or at 123 if a step's optimizer takes as long as what is fixed: 118 decides."""
    steps = {batch: 1 if held is None else held // batch for batch in (16, 64, 1024)}
    trials = [
        trial(measured(batch / (0.11 + 0.001 * batch)), batch_size=batch, gradient_accumulation_steps=steps[batch])
        for batch in (16, 64)
    ]

    rule, _, _ = _world(*trials, goal=Goal(global_batch=held), fits_up_to=512)

    assert rule.why(_recomputed(1024, gradient_accumulation_steps=steps[1024])) is why


def test_two_batches_that_are_close_tell_no_slope():
    rule, _, _ = _world(_ran(0, 48, 0.58), _ran(1, 64, 0.74), fits_up_to=64)

    assert rule.why(_recomputed(512)) is None


def test_each_reason_is_told_once_with_what_it_rests_on():
    rule, _, _ = _world(_ran(0, 16, 0.26), _ran(1, 64, 0.74), fits_up_to=64)

    told = set()

    (fits, saturated), again = rule.exclusions(told), rule.exclusions(told)

    assert "the same batch is predicted to fit without activation checkpointing" in fits
    assert "half of its full speed at batch 10, and 64 fits without it" in saturated
    assert again == []


def test_who_wants_the_least_memory_decides_by_probes():
    rule, _, _ = _world(goal=Goal(objective="memory"), fits_up_to=4096)

    assert not rule.decides
    assert rule.admits(_recomputed(64))


def test_who_fixes_it_is_obeyed():
    fixed = Goal(limits={"activation_checkpointing": Limit(values=(True,))})
    rule, _, _ = _world(goal=fixed, fits_up_to=4096)

    assert not rule.decides
    assert rule.admits(_recomputed(64))


def test_without_a_trade_in_the_space_nothing_is_decided():
    rule, _, _ = _world(searched=space(goal=FREE, baseline=config(batch_size=64)), fits_up_to=4096)

    assert not rule.decides
    assert rule.exclusions(set()) == []


CPU = environment(device="cpu", capability=None, usable_cores=4, default_threads=2)


def _on_a_cpu(goal=FREE):
    here, request = space(goal=goal, on=CPU), study_request(goal=goal, environment=CPU)
    return Trades(here, History(request), Guard(here), Predicted(0))


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"num_workers": 0}, TradeExclusion.CORES),
        ({"num_workers": 2}, TradeExclusion.CORES),
        ({"num_workers": 3}, None),  # two threads and three workers on four cores
        ({"num_workers": 0, "num_threads": 4}, TradeExclusion.CORES),
        ({"num_workers": 1, "num_threads": 4}, None),
    ],
)
def test_threads_that_sleep_gain_nothing_where_each_has_a_core(values, why):
    rule = _on_a_cpu()

    assert rule.why(config(omp_wait_policy="passive", **values)) is why
    assert rule.why(config(**values)) is None


def test_the_ranks_of_a_launcher_share_the_cores():
    here, request = space(goal=FREE, on=CPU), study_request(goal=FREE, environment=CPU, facts=facts(ranks=4))
    rule = Trades(here, History(request), Guard(here), Predicted(0))

    assert rule.why(config(omp_wait_policy="passive", num_workers=0)) is None


def test_it_is_told_why_no_thread_is_put_to_sleep():
    (line,) = _on_a_cpu().exclusions(set())

    assert "slower where each has a core of its own" in line


def test_who_lists_a_wait_policy_is_obeyed():
    rule = _on_a_cpu(Goal(limits={"omp_wait_policy": Limit(values=("passive",))}))

    assert rule.admits(config(omp_wait_policy="passive", num_workers=0))


def _updating(share):
    """The rule on a CPU whose baseline spent that share of its steps on updates; with configurations of each update."""
    ways = OptimizerFacts(names=("AdamW",), usual="for-loop", possible=("for-loop", "foreach", "fused"), step_share=0.5)
    found = space(goal=FREE, baseline=config(batch_size=64), of=facts(optimizer=ways, space={}), on=CPU)
    ran = measured()
    seconds = () if share is None else tuple(share * one for one in ran.measurement.step_seconds)
    timed = replace(ran, measurement=replace(ran.measurement, update_seconds=seconds))
    rule, *_ = _world(trial(timed, 0, batch_size=64), goal=FREE, searched=found)
    return rule, [one for one in found.configs if one["fused_optimizer"] is not None]


@pytest.mark.parametrize(("share", "why"), [(0.02, TradeExclusion.UPDATE), (0.1, None), (None, None)])
def test_another_update_is_not_probed_where_updates_are_a_small_part_of_a_step(share, why):
    rule, others = _updating(share)

    assert others
    assert {rule.why(one) for one in others if one["omp_wait_policy"] is None and not one["num_workers"]} == {why}
    said = [line for line in rule.exclusions(set()) if "update takes 2.0% of a step" in line]
    assert len(said) == (why is TradeExclusion.UPDATE)


def _loading(share, wait=0.0, *more, **values):
    """The rule after a baseline whose loader took that share of a step by itself and `wait` in its window, and more."""
    ran = measured(100.0, wait=wait)
    alone = None if share is None else IsolatedTiming(seconds=(share,), samples=100)
    timed = replace(ran, measurement=replace(ran.measurement, loader_only=alone))
    of = facts(space={})
    searched = space(goal=values.get("goal", FREE), baseline=config(batch_size=64), of=of)
    rule, *_ = _world(trial(timed, 0, batch_size=64), *more, goal=values.get("goal", FREE), searched=searched)
    return rule


@pytest.mark.parametrize(("share", "why"), [(0.005, TradeExclusion.LOADING), (0.05, None), (None, None)])
def test_workers_are_not_probed_where_loading_is_a_small_part_of_a_step(share, why):
    rule = _loading(share)

    assert rule.why(config(batch_size=64, num_workers=2)) is why
    assert rule.why(config(batch_size=64)) is None
    said = [line for line in rule.exclusions(set()) if "loading takes 0.5% of a step" in line]
    assert len(said) == (why is TradeExclusion.LOADING)


def test_workers_stay_where_the_window_waited_for_what_loading_alone_did_not_show():
    assert _loading(0.005, wait=0.25).why(config(batch_size=64, num_workers=2)) is None


@pytest.mark.parametrize(("brief", "why"), [(0.03, TradeExclusion.LOADING), (0.2, None)])
def test_one_short_window_that_waited_longer_does_not_bring_workers_back(brief, why):
    """As seen: two steps that waited 1.03 % of their time, after thirty that waited 0.3 %."""
    waited = measured(100.0, samples=8)
    alone = IsolatedTiming(seconds=(brief,), samples=100)
    short = replace(waited, measurement=replace(waited.measurement, loader_only=alone))
    rule = _loading(0.002, 0.0, trial(short, 1, batch_size=8))

    assert rule.why(config(batch_size=64, num_workers=2)) is why


def test_loading_is_a_larger_part_of_a_step_that_computes_faster():
    """The slow windows are the long ones: the share of the baseline's step says little of a step ten times as fast."""
    fast = measured(1000.0)
    alone = IsolatedTiming(seconds=(0.05,), samples=1000)
    timed = replace(fast, measurement=replace(fast.measurement, loader_only=alone))
    rule = _loading(0.005, 0.0, trial(timed, 1, batch_size=64, amp_dtype="bfloat16"))

    assert rule.why(config(batch_size=64, num_workers=2)) is None


def test_who_lists_workers_is_obeyed():
    rule = _loading(0.005, goal=Goal(limits={"num_workers": Limit(values=(0, 2))}))

    assert rule.why(config(batch_size=64, num_workers=2)) is None


def _faulting(*counts, goal=FREE, each=None, **values):
    """The rule on a CPU after probes with so many page faults of `each` s in a window of four steps of one second."""
    on = environment(device="cpu", capability=None, mallocs=("glibc",))
    ran = measured(100.0, samples=100)
    probes = [
        trial(replace(ran, measurement=replace(ran.measurement, **told)), number, batch_size=64, **values)
        for number, told in enumerate({"page_faults": count, "fault_seconds": each} for count in counts)
    ]
    searched = space(goal=goal, baseline=config(batch_size=64), of=facts(space={}), on=on)
    return _world(*probes, goal=goal, searched=searched)[0]


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ((1_000,), TradeExclusion.FAULTS),  # a millisecond of four seconds
        ((1_000, 400_000), None),  # a tenth in one of two processes
        ((None,), None),
    ],
)
def test_another_malloc_is_not_probed_where_page_faults_are_a_small_part_of_a_step(counts, why):
    rule = _faulting(*counts)

    assert rule.why(config(batch_size=64, malloc="glibc")) is why
    assert rule.why(config(batch_size=64)) is None
    said = [line for line in rule.exclusions(set()) if "page faults take 0.0% of a step" in line]
    assert len(said) == (why is TradeExclusion.FAULTS)


def test_where_a_page_fault_takes_long_a_few_of_them_suffice():
    assert _faulting(40_000).why(config(batch_size=64, malloc="glibc")) is TradeExclusion.FAULTS  # 1% of a step
    assert _faulting(40_000, each=3e-6).why(config(batch_size=64, malloc="glibc")) is None


def test_probes_that_keep_their_memory_say_nothing_of_the_faults_of_others():
    assert _faulting(0, malloc="glibc").why(config(batch_size=64, malloc="glibc")) is None


def test_who_lists_mallocs_is_obeyed():
    rule = _faulting(1_000, goal=Goal(limits={"malloc": Limit(values=(None, "glibc"))}))

    assert rule.why(config(batch_size=64, malloc="glibc")) is None


def test_what_remains_follows_every_probe_and_every_accident():
    trades, history, guard = _world()
    crashing, ran = config(batch_size=8), _ran(0, 64, 0.1)

    whole = trades.remaining()
    guard.note_accident(crashing)
    guard.note_accident(crashing)
    after_accidents = trades.remaining()
    _add(history, guard, ran)

    assert trades.remaining() is trades.remaining()
    assert set(whole) - set(after_accidents) == {crashing}
    assert ran.config in after_accidents
    assert ran.config not in trades.remaining()
