"""From rounds to an answer that says what it knows and no more."""

from dataclasses import replace

import msgspec
import pytest

from autotune.answer.recommend import StudyFacts, recommend
from autotune.core.codes import Code
from autotune.core.notices import notice
from autotune.core.records import Goal
from autotune.core.results import FAULT_SECONDS, LossVerdict, Outcome, Trial
from autotune.errors import NoRecommendation
from autotune.objectives.verdict import judge
from autotune.precision.arithmetic import precision_of
from autotune.study.summary import ConfigSummary
from tests.worlds import GIB, bad, config, earlier, facts, failed, good, measured, study_request

BASE = config(batch_size=64)
FAST = config(batch_size=64, amp_dtype="bfloat16")
FREE = study_request(goal=Goal())
REFUSED = earlier("bf16 learns less")


def _candidate(where, *rates, peak=GIB, lost="", wait=0.0, losses=(2.0,) * 4):
    verdicts = [good(rate) for rate in rates] + ([bad(lost)] if lost else [])
    trials = [
        Trial(number=n, purpose="confirm", config=where, result=measured(rate, peak=peak, wait=wait, losses=losses))
        for n, rate in enumerate(rates)
    ]
    return ConfigSummary(config=where, trials=tuple(trials), verdicts=tuple(verdicts))


def _failing(where, result):
    trial = Trial(number=0, purpose="confirm", config=where, result=result)
    return ConfigSummary(config=where, trials=(trial,), verdicts=(judge(result, study_request()),))


def _recommended(*candidates, request=None, losses=()):
    request = request or study_request()
    return recommend(candidates, request, StudyFacts(study="studies/x", probes=9, seconds=12.34, losses=losses))


def test_the_fastest_by_more_than_the_noise_wins():
    found = _recommended(_candidate(BASE, 100, 101), _candidate(FAST, 200, 202))

    assert found.params == FAST.values
    assert found.speedup == pytest.approx(2.0)
    assert found.samples_per_second == pytest.approx(201, abs=0.1)
    assert found.baseline_samples_per_second == pytest.approx(100.5, abs=0.1)


def test_tokens_are_the_same_rate_as_samples():
    def with_tokens(trial):
        measurement = trial.result.measurement
        tokens = tuple(48 * one for one in measurement.samples)
        result = msgspec.structs.replace(trial.result, measurement=msgspec.structs.replace(measurement, tokens=tokens))
        return msgspec.structs.replace(trial, result=result)

    base = _candidate(BASE, 73, 137)

    found = _recommended(replace(base, trials=tuple(map(with_tokens, base.trials))))

    assert found.samples_per_second == pytest.approx(100, abs=0.1)  # the geometric mean; the arithmetic one is 105
    assert found.tokens_per_second == pytest.approx(48 * found.samples_per_second, rel=1e-3)


def test_what_is_faster_by_two_per_cent_does_not_displace_the_baseline():
    found = _recommended(_candidate(BASE, 100, 100, 100), _candidate(FAST, 102, 102, 102))

    assert found.params == BASE.values
    assert (found.speedup, found.speedup_low, found.speedup_high) == (1.0, 1.0, 1.0)


def test_what_is_faster_by_three_per_cent_without_noise_does():
    found = _recommended(_candidate(BASE, 100, 100, 100), _candidate(FAST, 103, 103, 103))

    assert found.params == FAST.values


def test_what_is_faster_only_in_some_rounds_does_not_displace_the_baseline():
    found = _recommended(_candidate(BASE, 100, 110, 90), _candidate(FAST, 125, 85, 130))

    assert found.params == BASE.values
    (other,) = found.runners_up
    assert other.reason.code is Code.FASTER_NOT_SIGNIFICANT


def test_drift_that_meets_all_alike_is_not_noise():
    found = _recommended(_candidate(BASE, 100, 70, 50), _candidate(FAST, 110, 77, 55))

    assert found.params == FAST.values
    assert found.speedup_low == pytest.approx(1.1, abs=1e-3)


def test_the_interval_holds_the_estimate_and_grows_with_the_noise():
    quiet = _recommended(_candidate(BASE, 100, 101, 100), _candidate(FAST, 200, 199, 201))
    loud = _recommended(_candidate(BASE, 100, 110, 95), _candidate(FAST, 200, 190, 215))

    assert quiet.speedup_low < quiet.speedup < quiet.speedup_high
    assert loud.speedup_high - loud.speedup_low > 3 * (quiet.speedup_high - quiet.speedup_low)
    assert loud.relative_half_width > 3 * quiet.relative_half_width > 0


def test_a_single_round_does_not_prove_a_factor_of_two_and_has_no_interval():
    found = _recommended(_candidate(BASE, 100), _candidate(FAST, 200))

    assert found.params == BASE.values
    assert found.relative_half_width is None


def test_a_baseline_that_cannot_run_leaves_no_speedup():
    found = _recommended(_candidate(FAST, 200, 202))

    assert (found.speedup, found.baseline_samples_per_second) == (None, None)
    assert found.params == FAST.values


def test_among_equals_the_smallest_global_batch_wins_where_it_is_free():
    small = config(batch_size=128, gradient_accumulation_steps=1)
    large = config(batch_size=128, gradient_accumulation_steps=8)

    found = _recommended(_candidate(large, 201, 201), _candidate(small, 200, 200), request=FREE)

    assert found.params == small.values


BF16 = {"amp_dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("preferred", "other"),
    [
        ({"num_workers": 8}, {"num_workers": 1, "channels_last": True}),  # fewer changes to the baseline
        ({"batch_size": 32, "gradient_accumulation_steps": 2}, BF16),  # as many: full precision
        ({"num_workers": 2}, {"omp_wait_policy": "passive"}),  # no environment variable
        ({"num_workers": 2}, {"num_workers": 8}),  # fewer processes
    ],
)
def test_among_equals_fewer_and_milder_changes_win(preferred, other):
    found = _recommended(
        _candidate(BASE, 100, 100),
        _candidate(config(**{"batch_size": 64, **other}), 202, 202, peak=GIB),
        _candidate(config(**{"batch_size": 64, **preferred}), 200, 200, peak=2 * GIB),
    )

    assert found.params == config(**{"batch_size": 64, **preferred}).values


def test_where_batch_norm_takes_statistics_its_micro_batch_is_kept_before_anything_else():
    request = study_request(facts=facts(has_batch_norm=True))
    kept, halved = {**BF16, "channels_last": True}, {"batch_size": 32, "gradient_accumulation_steps": 2}

    found = _recommended(
        _candidate(BASE, 100, 100),
        _candidate(config(**halved), 202, 202),
        _candidate(config(**{"batch_size": 64, **kept}), 200, 200),
        request=request,
    )

    assert found.params == config(**{"batch_size": 64, **kept}).values


@pytest.mark.parametrize(("peak", "wins"), [(2 * GIB, False), (14 * GIB, True)])
def test_less_memory_decides_among_equals_only_where_memory_is_scarce(peak, wins):
    lean, hungry = (config(batch_size=64, num_workers=workers) for workers in (8, 2))

    found = _recommended(
        _candidate(BASE, 100, 100), _candidate(hungry, 200, 200, peak=peak), _candidate(lean, 200, 200, peak=peak // 2)
    )

    assert (found.params == lean.values) is wins


def test_a_finalist_that_failed_is_passed_over_and_named_with_its_reason():
    found = _recommended(
        _candidate(BASE, 100, 100), _candidate(FAST, 150, 150), _candidate(config(batch_size=8), 300, lost="no memory")
    )

    assert found.params == FAST.values
    (lost,) = [other for other in found.runners_up if other.config.batch_size == 8]
    assert (lost.samples_per_second, lost.reason.code, lost.reason.text) == (None, Code.FAILED, "no memory")


def test_if_none_held_there_is_no_recommendation():
    with pytest.raises(
        NoRecommendation, match=r"All configurations failed .*no memory.*\. .*\. .*--headroom"
    ) as caught:
        _recommended(_candidate(BASE, lost="no memory"), _candidate(FAST, 200, lost="hung"))

    assert caught.value.exit_code == 1


def test_if_all_diverge_the_learning_rate_is_advised_and_not_memory():
    diverged, where = failed(Outcome.UNSTABLE, "the loss grew"), config(batch_size=32, gradient_accumulation_steps=2)

    with pytest.raises(NoRecommendation, match=r"32×2 .*: unstable: the loss grew.*learning rate") as caught:
        _recommended(_failing(where, diverged), _failing(BASE, failed(message="unstable shapes")))

    assert "--headroom" not in str(caught.value)


@pytest.mark.parametrize(("message", "outcome", "advice"), [
    ("no sign of life", Outcome.TIMEOUT, "Search again when it is quiet"),
    ("hung, or unstable", Outcome.OOM_DEVICE, "--headroom"),
])  # fmt: skip
def test_the_advice_follows_how_they_ended_and_not_the_words_of_an_error(message, outcome, advice):
    with pytest.raises(NoRecommendation, match=advice):
        _recommended(_failing(BASE, failed(outcome, message)))


def test_runners_up_say_by_how_much_and_what_they_would_cost():
    found = _recommended(
        _candidate(BASE, 100, 100), _candidate(FAST, 200, 200), _candidate(config(batch_size=8), 160, 160, peak=4 * GIB)
    )

    reasons = {other.config.batch_size: other.reason.text for other in found.runners_up}
    assert reasons == {64: "50% slower", 8: "20% slower, needs 4 GiB instead of 1 GiB"}


def test_a_clear_but_negligible_lead_is_not_called_noise():
    found = _recommended(_candidate(BASE, 100, 100, 100), _candidate(FAST, 101.5, 101.5, 101.5))

    assert found.runners_up[0].reason.code is Code.FASTER_BELOW_THRESHOLD
    assert found.runners_up[0].reason.numbers["share"] == pytest.approx(0.015, rel=0.01)


def test_the_headroom_is_the_share_that_was_free_at_the_largest_peak():
    assert _recommended(_candidate(BASE, 100, peak=4 * GIB)).headroom_fraction == 0.75


def test_rates_are_given_to_five_digits():
    found = _recommended(_candidate(BASE, 1234.56789))

    assert found.samples_per_second == 1234.6
    assert found.confirmations[0].rounds == (1234.6,)


def test_every_candidate_that_held_is_listed_with_its_probes():
    found = _recommended(_candidate(BASE, 100, 101), _candidate(FAST, 200, 202), _candidate(config(), lost="no"))

    assert [confirmation.trials for confirmation in found.confirmations] == [(0, 1), (0, 1)]
    assert (found.rounds, found.probes, found.seconds) == (2, 9, 12.3)


def _warnings(where=BASE, request=None, **options):
    found = _recommended(_candidate(where, 100, 100, **options), request=request)
    return {warning.code: warning for warning in found.warnings}


def test_an_ordinary_answer_has_no_warnings():
    assert _warnings() == {}


def test_another_global_batch_brings_a_learning_rate_to_start_from():
    found = _recommended(_candidate(config(batch_size=256), 100, 100), request=FREE)

    said = found.global_batch_change
    assert Code.GLOBAL_BATCH_CHANGED not in {warning.code for warning in found.warnings}  # it is no footnote
    assert said.numbers == {"before": 64, "now": 256, "factor": 4.0, "learning_rate_factor": 2.0}
    assert "--global-batch 64" in said.text


def test_batch_norm_is_told_of_another_micro_batch():
    request = study_request(facts=facts(has_batch_norm=True))
    halved = config(batch_size=32, gradient_accumulation_steps=2)

    assert _warnings(halved, request)[Code.BATCH_NORM].numbers == {"now": 32, "before": 64}
    assert Code.BATCH_NORM not in _warnings(BASE, request)
    assert Code.BATCH_NORM not in _warnings(halved)


@pytest.mark.parametrize(("known", "is_told"), [(False, True), (True, False), (None, False)])
def test_a_loss_that_is_no_mean_is_told_of_another_micro_batch(known, is_told):
    request = study_request(facts=facts(is_mean_loss=known))
    halved = config(batch_size=32, gradient_accumulation_steps=2)

    assert (Code.LOSS_OF_BATCH in _warnings(halved, request)) is is_told
    assert Code.LOSS_OF_BATCH not in _warnings(BASE, request)


@pytest.mark.parametrize(("workers", "code"), [(2, Code.LOADER_BOUND_SEARCH_SHORT), (8, Code.LOADER_BOUND)])
def test_waiting_for_data_is_said_with_what_is_left_to_try(workers, code):
    said = _warnings(config(batch_size=64, num_workers=workers), wait=0.4)

    assert said[code].numbers["wait_share"] == pytest.approx(0.4)


def test_a_little_waiting_is_not_worth_a_word():
    assert _warnings(wait=0.1) == {}


def test_where_the_targets_own_loader_takes_no_workers_that_is_what_to_change():
    said = _warnings(request=study_request(facts=facts(data="dataloader", takes_workers=False)), wait=0.4)

    assert said.keys() == {Code.LOADER_BOUND_WORKERS_FIXED}


@pytest.mark.parametrize(
    ("data", "workers", "said"), [("iterable", 4, True), ("iterable", 1, False), ("dataset", 4, False)]
)
def test_more_workers_over_an_iterable_dataset_may_repeat_its_samples(data, workers, said):
    request = study_request(facts=facts(data=data))

    warnings = _warnings(config(batch_size=64, num_workers=workers), request=request)

    assert (Code.SAMPLES_REPEATED in warnings) is said


def test_synthetic_batches_are_said_and_their_loader_is_not_blamed():
    said = _warnings(request=study_request(facts=facts(data="batch", dataset_samples=None)), wait=0.4)

    assert said.keys() == {Code.SYNTHETIC_BATCHES}


def test_a_command_that_waits_for_data_is_not_sent_to_an_option_that_it_cannot_follow():
    request = study_request(facts=facts(settable=("batch_size",), owns_loop=True))

    assert Code.LOADER_BOUND_COMMAND in _warnings(request=request, wait=0.4)


def test_batches_that_a_loop_draws_itself_are_not_called_synthetic():
    said = _warnings(request=study_request(facts=facts(data="batch", dataset_samples=None, owns_loop=True)), wait=0.4)

    assert said.keys() == set()


def test_a_noisy_machine_is_said():
    found = _recommended(_candidate(BASE, 100, 120, 90), _candidate(FAST, 300, 240, 330))

    assert [warning.code for warning in found.warnings] == [Code.PRECISION_UNDECIDED, Code.RATES_SPREAD]


def _faulting(where, *probes):
    """A candidate by the rate and the share of page faults of each of its probes."""
    verdicts = tuple(good(rate) for rate, _ in probes)
    trials = []
    for number, (rate, share) in enumerate(probes):
        ran = measured(rate)
        faults = round(share * sum(ran.measurement.step_seconds) / FAULT_SECONDS)
        ran = msgspec.structs.replace(ran, measurement=msgspec.structs.replace(ran.measurement, page_faults=faults))
        trials.append(Trial(number=number, purpose="confirm", config=where, result=ran))
    return ConfigSummary(config=where, trials=tuple(trials), verdicts=verdicts)


def test_repeats_that_differ_by_page_faults_do_not_blame_other_work():
    slowed = _faulting(BASE, (100.0, 0.0), (80.0, 0.2), (90.0, 0.1))
    kept = config(**FAST.values | {"malloc": "glibc"})
    plain, keeping = (
        [warning.code for warning in _recommended(slowed, _candidate(fast, 300, 300, 300)).warnings]
        for fast in (FAST, kept)
    )

    assert Code.FAULTS_SPREAD in plain and Code.RATES_SPREAD not in plain
    assert {Code.FAULTS_SPREAD, Code.RATES_SPREAD}.isdisjoint(keeping)


def test_page_faults_may_take_more_than_a_microsecond_each():
    """A small U-net's baseline, as it was measured on a quiet machine: 25,900 and 39,900 faults of 2.3 us a step."""
    slowed = _faulting(BASE, (367.0, 0.297), (267.0, 0.333), (267.0, 0.333))

    codes = [warning.code for warning in _recommended(slowed, _candidate(FAST, 800, 798, 789)).warnings]

    assert Code.FAULTS_SPREAD in codes and Code.RATES_SPREAD not in codes


def test_other_work_is_blamed_where_repeats_differ_by_page_faults_and_by_more():
    noisy = _faulting(BASE, (100.0, 0.0), (70.0, 0.05), (120.0, 0.0))

    codes = [warning.code for warning in _recommended(noisy, _candidate(FAST, 300, 300, 300)).warnings]

    assert Code.RATES_SPREAD in codes and Code.FAULTS_SPREAD not in codes


def test_a_precision_that_there_was_no_time_to_compare_is_undecided():
    found = _recommended(_candidate(BASE, 100, 100), _candidate(FAST, 300, 300))

    (doubt,) = [warning for warning in found.warnings if warning.code is Code.PRECISION_UNDECIDED]
    assert "there was no time to compare" in doubt.text
    assert "(--fix amp=none, or --exact)" in doubt.text


def test_a_held_global_batch_is_a_reason():
    assert _recommended(_candidate(BASE, 100)).reasons[0] == notice(Code.GLOBAL_BATCH_HELD, batch=64)


def test_what_stability_means_is_said():
    off = study_request(goal=Goal(global_batch=64, stability="off"))

    plain = _recommended(_candidate(BASE, 100, 100)).stability
    assert plain == notice(Code.LOSSES_FINITE, reference="full precision", steps=8)
    unseen = _recommended(_candidate(FAST, 100, 100)).stability
    assert unseen == notice(Code.LOSSES_NOT_COMPARED, reference="full precision", steps=8)
    assert _recommended(_candidate(BASE, 100), request=off).stability.code is Code.LOSSES_NOT_CHECKED


def _verdict(word, reason, dtype="bfloat16"):
    values = precision_of(config(amp_dtype=dtype))
    return LossVerdict(verdict=word, values=values, reason=earlier(reason), batch_size=64)


def test_a_comparison_of_losses_is_told_as_it_came_out_for_the_winners_arithmetic():
    verdicts = (_verdict("worse", "fp16 lags", "float16"), _verdict("ok", "bf16 tracked fp32 over 50 paired steps"))

    found = _recommended(_candidate(FAST, 100, 100), losses=verdicts)

    assert found.stability == verdicts[1].reason
    assert found.loss_verdicts == verdicts
    assert found.warnings == ()


def test_a_comparison_that_came_to_nothing_is_a_warning_with_a_next_step():
    found = _recommended(_candidate(FAST, 100, 100), losses=(_verdict("inconclusive", "bf16 cannot be judged"),))

    assert found.stability == notice(Code.LOSSES_NOT_CLEARED, reference="full precision", steps=8)
    assert found.warnings == (
        notice(
            Code.PRECISION_UNDECIDED,
            reference="full precision",
            why=earlier("bf16 cannot be judged"),
            hold="--fix amp=none",
        ),
    )


def test_a_refused_candidate_never_wins_however_fast():
    fast = replace(_candidate(FAST, 300, 300), refused=REFUSED)

    found = _recommended(fast, _candidate(BASE, 100, 100))

    assert found.params == BASE.values
    (lost,) = found.runners_up
    assert (lost.samples_per_second, lost.reason) == (300.0, REFUSED)


def test_a_refused_candidate_that_was_not_measured_again_is_told_with_its_reason():
    found = _recommended(_candidate(BASE, 100), ConfigSummary(config=FAST, found=300.0, refused=REFUSED))

    (lost,) = found.runners_up
    assert (lost.config, lost.samples_per_second, lost.reason) == (FAST, None, REFUSED)


def test_if_only_refused_candidates_hold_there_is_no_recommendation():
    fast = replace(_candidate(FAST, 300, 300), refused=REFUSED)

    with pytest.raises(NoRecommendation, match=r"bf16 learns less.*hung"):
        _recommended(fast, _candidate(BASE, lost="hung"))


def _eight_equal_and_one_lucky():
    wobble = [(100, 104, 97, 101), (101, 97, 103, 100), (98, 101, 102, 99), (103, 99, 98, 101)]
    others = [_candidate(config(batch_size=8 * (n + 1)), *wobble[n % 4]) for n in range(6)]
    return [*others, _candidate(config(batch_size=256), 106, 107, 104, 105), _candidate(BASE, 100, 102, 99, 101)]


def test_a_finalist_that_rounds_cannot_tell_apart_still_loses_if_it_seems_much_slower():
    cautious = config(batch_size=64, num_workers=1)
    bold = config(batch_size=64, num_workers=2)
    loud = (_candidate(BASE, 100, 90), _candidate(cautious, 300, 340), _candidate(bold, 400, 330))

    found = _recommended(*loud)

    assert found.params == bold.values
    assert found.runners_up[1].reason.code is Code.SLOWER_NOT_SIGNIFICANT


def test_the_luckiest_of_many_needs_more_to_displace_the_baseline_than_the_only_rival():
    crowd = _eight_equal_and_one_lucky()

    alone = _recommended(_candidate(config(batch_size=256), 104, 104.6, 101.4, 104), crowd[-1], *crowd[:1])
    assert alone.params["batch_size"] == 256
    assert _recommended(_candidate(config(batch_size=256), 104, 104.6, 101.4, 104), *crowd[:6], crowd[-1]).params == (
        BASE.values
    )


def test_who_stayed_behind_does_not_win_by_three_lucky_rounds():
    behind = replace(_candidate(config(batch_size=8), 150, 150, 150), is_behind=True)

    found = _recommended(behind, _candidate(FAST, *(140.0, 141.0, 140.0, 139.0)), _candidate(BASE, 100, 101, 100, 99))

    assert found.params == FAST.values
    assert [len(one.rounds) for one in found.confirmations] == [3, 4, 4]


def test_who_stayed_behind_wins_if_all_that_went_on_failed():
    behind = replace(_candidate(config(batch_size=8), 150, 150, 150), is_behind=True)

    found = _recommended(behind, _candidate(FAST, 140, 140, 140, lost="hung"), _candidate(BASE, 100, 101, 100, 99))

    assert found.params["batch_size"] == 8
    assert found.speedup == pytest.approx(1.5, rel=0.01)


def test_rates_and_the_speedup_agree_when_candidates_ran_in_different_rounds():
    behind = replace(_candidate(config(batch_size=8), 110, 110, 110), is_behind=True)
    slowing = (100, 100, 100, 50, 50, 50)

    found = _recommended(behind, _candidate(FAST, *(2 * rate for rate in slowing)), _candidate(BASE, *slowing))

    rates = {one.config: one.samples_per_second for one in found.confirmations}
    assert rates[FAST] == pytest.approx(2 * rates[BASE], rel=1e-4)
    assert rates[behind.config] == pytest.approx(1.1 * rates[BASE], rel=1e-4)
    assert found.speedup == pytest.approx(found.samples_per_second / found.baseline_samples_per_second, rel=1e-4)


def test_who_fell_in_the_confirmation_is_a_reason_of_the_next():
    fallen = replace(_candidate(FAST, 300, lost="out of memory"), found=300.0)
    base = _candidate(BASE, 100, 100)

    said = _recommended(fallen, base).reasons

    assert [why.numbers["failure"] for why in said if why.code is Code.FASTER_BUT_FAILED] == [earlier("out of memory")]
    assert len(_recommended(_candidate(FAST, 90, 90), base).reasons) == len(said) - 1


def test_the_certificate_is_kept():
    base = _candidate(BASE, 100, 100)

    found = recommend(
        [base], study_request(), StudyFacts(study="s", probes=1, seconds=1.0, certificate=earlier("9 of 1,200 tried"))
    )

    assert found.certificate == earlier("9 of 1,200 tried")


def test_losses_that_nobody_was_to_judge_are_told_where_they_broke():
    unjudged = study_request(goal=Goal(stability="off"))

    broken = _recommended(_candidate(BASE, 100, 100, losses=(2.0, None, None, None)), request=unjudged)
    healthy = _recommended(_candidate(BASE, 100, 100), request=unjudged)

    doubt = notice(Code.UNSTABLE_NOT_FINITE, broken=3, losses=4)
    assert broken.warnings == (notice(Code.LOSSES_UNJUDGED, doubt=doubt),)
    assert ", and training is unstable: 3 of 4 losses are not finite. " in broken.warnings[0].text
    assert healthy.warnings == ()


@pytest.mark.parametrize(
    ("rates", "taken"), [([104.0] * 3, False), ([107.0] * 3, True)],
    ids=["too little", "enough"],
)  # fmt: skip
def test_a_precision_whose_losses_are_open_must_be_worth_five_per_cent_over_the_best_without_it(rates, taken):
    plain = config(batch_size=64, num_workers=2)
    fast = config(batch_size=64, num_workers=2, amp_dtype="bfloat16")
    rivals = [_candidate(BASE, 80, 80, 80), _candidate(plain, 100, 100, 100), _candidate(fast, *rates)]

    open_ones = _recommended(*rivals, losses=(_verdict("inconclusive", "bf16 cannot be judged"),))
    matching = _recommended(*rivals, losses=(_verdict("ok", "bf16 matches"),))
    command = _recommended(*rivals, request=study_request(target="-- python train.py {bf16:flag=false}"))

    assert open_ones.params == command.params == (fast if taken else plain).values
    assert matching.params == fast.values
    assert (Code.PRECISION_UNDECIDED in [one.code for one in open_ones.warnings[:1]]) is taken


def test_what_the_baseline_computes_in_is_not_doubted():
    base = config(batch_size=64, amp_dtype="bfloat16")
    request = study_request(baseline=base)
    other = _candidate(config(batch_size=64), 99, 99, 99)

    open_ones = (_verdict("inconclusive", "bf16 cannot be judged"),)

    kept = _recommended(_candidate(base, 100, 100, 100), other, request=request, losses=open_ones)

    assert kept.params == base.values
    assert Code.PRECISION_UNDECIDED not in [warning.code for warning in kept.warnings]


def test_why_a_little_faster_precision_in_doubt_was_not_chosen_is_said():
    half, full = config(batch_size=64, amp_dtype="bfloat16"), config(batch_size=64, channels_last=True)
    candidates = [_candidate(BASE, 100, 100, 100), _candidate(full, 200, 200, 200), _candidate(half, 208, 208, 208)]

    found = _recommended(*candidates, losses=(_verdict("inconclusive", "bf16 cannot be judged"),))

    (reason,) = [one.reason for one in found.runners_up if one.config == half]
    assert reason.text.startswith("4.0% faster, too little for a precision whose losses are undecided (under 5%)")


def test_workers_that_there_was_no_time_to_confirm_are_not_said_to_gain_nothing():
    more = config(batch_size=64, num_workers=4)
    waiting = _candidate(config(batch_size=64), 100, 100, 100, wait=0.9)
    request = study_request(baseline=waiting.config)
    told = {}
    for other in (_candidate(more, 100, 100, 100), _candidate(more, 100)):
        found = recommend(
            [waiting, other], request, StudyFacts(study="x", probes=2, seconds=9.0, probed={waiting.config, more})
        )  # fmt: skip
        told[len(other.trials) > 1] = {warning.code for warning in found.warnings}

    assert Code.LOADER_BOUND_WORKERS_TRIED in told[True]
    assert Code.LOADER_BOUND_WORKERS_TRIED not in told[False]
    assert Code.LOADER_BOUND_WORKERS_OPEN in told[False]


def test_the_global_batch_of_an_answer_is_of_all_ranks():
    found = _recommended(
        _candidate(BASE, 100, 101), _candidate(config(batch_size=128), 200, 202),
        request=study_request(goal=Goal(), facts=facts(ranks=2)),
    )  # fmt: skip

    assert (found.global_batch_size, found.baseline_global_batch_size) == (256, 128)
    assert found.at_baseline_batch.global_batch_size == 128
    assert "128" in found.global_batch_change.text and "256" in found.global_batch_change.text
