"""The decision rule on losses made by hand: every line of it, from both sides."""

import math
import random

import msgspec
import pytest

from autotune.core.results import Failure, Outcome
from autotune.core.stats import mean_bounds
from autotune.knobs import KNOBS
from autotune.precision.arithmetic import full_precision, names, precision_of
from autotune.precision.judge import LAST_LOSSES, Thresholds, judge, pooled, settled
from autotune.precision.records import LossRun, PrecisionCheckRequest, PrecisionCheckResult
from tests.worlds import config, facts

STEPS = 50
CURVE = tuple(2.0 * math.exp(-step / 15) + 0.3 for step in range(STEPS))
FALL = sum(CURVE[:3]) / 3 - sum(CURVE[-10:]) / 10


def _request(**changes):
    return msgspec.structs.replace(
        PrecisionCheckRequest(
            target="model.py",
            reference=config(batch_size=16),
            candidate=config(batch_size=16, amp_dtype="float16"),
            device="cpu",
        ),
        **changes,
    )


def _behind(share, curve=CURVE):
    """The curve of a run that loses `share` of the decrease in the last steps."""
    return (*curve[:-LAST_LOSSES], *(loss + share * FALL for loss in curve[-LAST_LOSSES:]))


def _runs(candidate=CURVE, *, seed=0, reference=CURVE, perturbed=None, **changes):
    common = {"gradient_norms": (1.0,) * len(reference), "zero_gradient_shares": (0.001,) * len(reference)}
    return (
        LossRun(role="reference", seed=seed, losses=tuple(reference), **common),
        LossRun(role="perturbed", seed=seed, losses=tuple(perturbed or reference), **common),
        LossRun(role="candidate", seed=seed, losses=tuple(candidate), **{**common, "loss_scale": 65536.0, **changes}),
    )


def _judged(*runs, request=None, lines=None):
    result = PrecisionCheckResult(outcome=Outcome.OK, runs=runs)
    return judge(request or _request(), result, lines or Thresholds())


def _broken(count, curve=CURVE):
    return (*curve[: len(curve) - count], *(None,) * count)


@pytest.mark.parametrize(("share", "word"), [(-0.5, "ok"), (0.0, "ok"), (0.019, "ok"), (0.021, "worse")])
def test_two_percent_of_the_decrease_is_the_line(share, word):
    verdict = _judged(*_runs(_behind(share)))

    assert verdict.verdict == word
    assert verdict.excludes == (word == "worse")
    assert verdict.difference == pytest.approx(share, abs=1e-3)
    assert verdict.allowed == pytest.approx(0.02)


def test_the_line_can_be_moved():
    assert _judged(*_runs(_behind(0.03)), lines=Thresholds(tolerance=0.05)).verdict == "ok"


@pytest.mark.parametrize(("noise", "word"), [(0.006, "ok"), (0.007, "inconclusive")])
def test_one_seed_decides_only_where_three_times_its_noise_is_within_the_tolerance(noise, word):
    verdict = _judged(*_runs(_behind(0.0), perturbed=_behind(noise)))

    assert (verdict.verdict, verdict.excludes) == (word, False)
    assert verdict.remedy == ("" if word == "ok" else "seeds")


def test_what_passes_has_passed_at_the_tolerance_and_at_nothing_wider():
    assert _judged(*_runs(_behind(0.001), perturbed=_behind(0.006))).allowed == pytest.approx(0.02)
    assert _judged(*_seeds(0.001, 0.002, 0.003, perturbed=_behind(0.05))).allowed == pytest.approx(0.02)


def test_who_is_behind_is_blamed_only_for_more_than_the_noise():
    quiet, noisy = (_judged(*_seeds(0.05, 0.052, 0.056, perturbed=_behind(size))) for size in (0.01, 0.02))

    assert (quiet.verdict, quiet.allowed) == ("worse", pytest.approx(0.03))
    assert (noisy.verdict, noisy.remedy) == ("inconclusive", "seeds")


def _noisy(seeds, bias, noise, alike, chance):
    """Comparisons with that bias and noise, both shares of the decrease; `alike`: how much of it lasts over steps."""

    def off():
        lasting, fleeting = (
            chance.gauss(0, noise * alike),
            noise * math.sqrt(1 - alike**2) * math.sqrt(LAST_LOSSES),
        )
        return [lasting + chance.gauss(0, fleeting) for _ in range(LAST_LOSSES)]

    def moved(by):
        return (
            *CURVE[:-LAST_LOSSES],
            *(loss + share * FALL for loss, share in zip(CURVE[-LAST_LOSSES:], by, strict=True)),
        )

    return [
        run
        for seed in range(seeds)
        for run in _runs(moved([bias + one for one in off()]), perturbed=moved(off()), seed=seed)
    ]


@pytest.mark.parametrize("alike", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("noise", [0.002, 0.01, 0.02, 0.05])
@pytest.mark.parametrize("seeds", [1, 3, 6, 12])
def test_a_bias_of_twice_the_tolerance_hardly_ever_passes_whatever_the_noise(seeds, noise, alike):
    chance = random.Random(f"{seeds} {noise} {alike}")

    passed = sum(_judged(*_noisy(seeds, 0.04, noise, alike, chance)).verdict == "ok" for _ in range(100))

    assert passed <= 8  # a power of 0.92; 0.8 is asked


@pytest.mark.parametrize(("seeds", "noise"), [(1, 0.002), (3, 0.01), (12, 0.03)])
def test_what_is_healthy_mostly_passes_once_there_are_seeds_enough_for_the_noise(seeds, noise):
    chance = random.Random(f"{seeds} {noise}")

    words = [_judged(*_noisy(seeds, 0.0, noise, 0.7, chance)).verdict for _ in range(100)]

    assert words.count("ok") >= 60
    assert words.count("worse") == 0


def test_a_healthy_dtype_is_described_with_its_numbers_and_no_more_is_claimed():
    reason = _judged(*_runs(_behind(0.004))).reason

    assert reason.text == "fp16 loss matches fp32: 0.40% apart after 50 paired steps at batch 16 (tolerance 2.0%)"
    assert reason.numbers["start"] == pytest.approx(2.17, rel=0.01)


def test_a_worse_dtype_is_described_with_its_numbers():
    reason = _judged(*_runs(_behind(0.05))).reason

    assert reason.text == (
        "fp16 learns less than fp32: its loss decreases 5.0% less over 50 paired steps at batch 16 (tolerance 2.0%)"
    )


SKIPS = [
    (tuple(range(10)), "ok"),  # calibration
    (tuple(range(11)), "skipped the first 11 steps"),
    (tuple(range(50)), "skipped the first 50 steps"),
    ((0, 1, 20), "ok"),
    ((0, 1, 20, 30), "skipped 2 of 48 steps after the first success"),
    ((20, 30), "skipped 2 of 50 steps"),
]


@pytest.mark.parametrize(("skipped", "words"), SKIPS)
def test_a_few_first_skips_are_calibration_and_more_than_one_later_is_not(skipped, words):
    verdict = _judged(*_runs(skipped_steps=skipped))

    assert verdict.verdict == ("ok" if words == "ok" else "unstable")
    assert words == "ok" or words in verdict.reason.text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"candidate": _broken(1)}, "1 of 50 losses are not finite, the first in step 50 (fp32: all are finite)"),
        ({"loss_scale": 0.5}, "the loss scale fell to 0.5"),
        ({"zero_gradient_shares": (0.83,) * STEPS}, "83% of their entries are exactly zero (fp32: 0.1%)"),
        (
            {"gradient_norms": (1.0,) * 20 + (11.0,) + (1.0,) * 20 + (11.0,) * 9},
            "exceeded 10 times its running median 10 times in 50 steps (fp32: 0 times)",
        ),
    ],
)
def test_what_breaks_only_in_the_candidate_is_unstable(changes, words):
    verdict = _judged(*_runs(**changes))

    assert verdict.verdict == "unstable"
    assert verdict.excludes
    assert words in verdict.reason.text


@pytest.mark.parametrize(
    "changes",
    [
        {"loss_scale": 1.0},
        {"loss_scale": None},
        {"zero_gradient_shares": (0.19,) * STEPS},
        {"gradient_norms": (1.0,) * 20 + (11.0,) + (1.0,) * 29},
        {"gradient_norms": (None,) * 3 + (1.0,) * 47},
    ],
)
def test_what_is_within_the_lines_is_not_unstable(changes):
    assert _judged(*_runs(**changes)).verdict == "ok"


def test_zeros_that_full_precision_has_too_are_the_models_own():
    reference, perturbed, candidate = _runs(zero_gradient_shares=(0.6,) * STEPS)
    sparse = msgspec.structs.replace(reference, zero_gradient_shares=(0.5,) * STEPS)

    assert _judged(sparse, perturbed, candidate).verdict == "ok"


@pytest.mark.parametrize(("second", "verdict"), [(70, "ok"), (40, "unstable")])
def test_in_a_longer_check_jumps_far_apart_are_not_taken_together(second, verdict):
    curve = tuple(2.0 * math.exp(-step / 60) + 0.3 for step in range(4 * STEPS))
    norms = tuple(11.0 if step in (20, second) else 1.0 for step in range(4 * STEPS))

    assert _judged(*_runs(curve, reference=curve, gradient_norms=norms)).verdict == verdict


def test_jumps_that_full_precision_has_too_are_the_models_own():
    jumpy = (1.0,) * 20 + (11.0,) + (1.0,) * 20 + (11.0,) * 9
    reference, perturbed, candidate = _runs(gradient_norms=jumpy)

    assert _judged(msgspec.structs.replace(reference, gradient_norms=jumpy), perturbed, candidate).verdict == "ok"


@pytest.mark.parametrize(
    ("reference", "remedy", "words"),
    [
        (_broken(30), "", "30 of 50 losses of fp32 itself are not finite"),
        (CURVE[::-1], "steps", "the loss of fp32 itself did not decrease in 50 steps (0."),
        ((2.1, 2.2, 2.0, 2.1) * 12 + (1.95, 2.1), "steps", "did not decrease"),  # 0.03 lower, which is within its noise
    ],
)
def test_nobody_is_blamed_where_full_precision_breaks_or_learns_nothing(reference, remedy, words):
    for candidate in (reference, _broken(50)):
        verdict = _judged(*_runs(candidate, reference=reference))

        assert (verdict.verdict, verdict.excludes, verdict.remedy) == ("inconclusive", False, remedy)
        assert words in verdict.reason.text


@pytest.mark.parametrize(("steps", "word"), [(19, "inconclusive"), (20, "ok")])
def test_fewer_than_twenty_steps_say_nothing(steps, word):
    verdict = _judged(*_runs(CURVE[:steps], reference=CURVE))

    assert (verdict.verdict, verdict.steps) == (word, steps)
    assert verdict.remedy == ("" if word == "ok" else "time")


def test_no_runs_at_all_say_nothing():
    assert _judged().verdict == "inconclusive"


def test_a_comparison_that_failed_is_inconclusive_and_says_why():
    failure = Failure(phase="build", message="ZeroDivisionError", evidence="model.py:3")

    verdict = judge(_request(), PrecisionCheckResult(outcome=Outcome.USER_ERROR, failure=failure))

    assert verdict.verdict == "inconclusive"
    assert verdict.reason.text == "fp16 could not be compared with fp32: ZeroDivisionError (model.py:3)"


def _wobbling(size):
    """Full precision from other weights, off by as much up as down: masks that are not the same in both runs."""
    return tuple(loss + size * FALL * (-1) ** step for step, loss in enumerate(CURVE))


def test_runs_that_are_hardly_paired_need_several_seeds():
    tight, loose = (_judged(*_runs(_behind(0.05), perturbed=_wobbling(size))) for size in (0.019, 0.021))

    assert (tight.verdict, tight.remedy) == ("worse", "")
    assert (loose.verdict, loose.remedy) == ("inconclusive", "seeds")
    assert loose.reason.numbers["looseness"] == pytest.approx(0.021, rel=0.01)


def _seeds(*shares, **changes):
    return [run for seed, share in enumerate(shares) for run in _runs(_behind(share), seed=seed, **changes)]


@pytest.mark.parametrize(
    ("shares", "word"),
    [
        ((0.001, -0.002, 0.003), "ok"),
        ((0.05, 0.052, 0.056), "worse"),
        ((-0.005, 0.015, 0.035), "inconclusive"),  # by its mean alone this would have passed
        ((0.01, 0.03, 0.05), "inconclusive"),
    ],
)
def test_with_three_seeds_an_interval_decides_or_leaves_it_open(shares, word):
    verdict = _judged(*_seeds(*shares))

    assert (verdict.verdict, verdict.seeds) == (word, 3)
    assert verdict.remedy == ("seeds" if word == "inconclusive" else "")


def test_hardly_paired_runs_are_blamed_only_for_more_than_another_seed_does():
    curves = [tuple(loss + shift for loss in CURVE) for shift in (0.0, 0.1, 0.2)]
    wobble = [tuple(x + 0.03 * FALL * (-1) ** step for step, x in enumerate(curve)) for curve in curves]
    paired, loose = (
        [
            run
            for seed, curve in enumerate(curves)
            for run in _runs(_behind(0.04, curve), seed=seed, reference=curve, perturbed=other[seed])
        ]
        for other in (curves, wobble)
    )

    assert _judged(*paired).verdict == "worse"
    assert _judged(*loose).verdict == "inconclusive"  # seeds end 0.1 apart, which is more than 4 % of the decrease


def test_the_bounds_of_a_mean_are_students():
    low, high = mean_bounds([1.0, 2.0, 3.0])

    assert (low, high) == pytest.approx((2 - 2.9200 / math.sqrt(3), 2 + 2.9200 / math.sqrt(3)), abs=1e-4)


def test_the_last_comparison_of_an_arithmetic_counts():
    bad, good = (PrecisionCheckResult(outcome=Outcome.OK, runs=_runs(_behind(share))) for share in (0.05, 0.0))
    other = _request(candidate=config(batch_size=16, amp_dtype="bfloat16"))

    verdicts = settled([(_request(), bad), (other, bad), (_request(), good)])

    assert [(v.values["amp_dtype"], v.verdict) for v in verdicts] == [("float16", "ok"), ("bfloat16", "worse")]


def test_seeds_that_were_compared_one_after_the_other_are_judged_together():
    def asked(*seeds):
        runs = [run for seed in seeds for run in _runs(_behind(0.01 * seed), seed=seed)]
        return _request(seeds=seeds), PrecisionCheckResult(outcome=Outcome.OK, runs=tuple(runs))

    ((request, result),) = pooled([asked(0), asked(1, 2)])

    assert request.seeds == (0, 1, 2)
    assert judge(request, result).seeds == 3
    longer = (_request(steps=100), asked(0)[1])
    assert pooled([asked(0), longer]) == [longer]


def test_an_arithmetic_is_named_as_the_table_names_it():
    assert names(_request()) == ("fp16", "fp32")
    usual = {knob.name: knob.default for knob in KNOBS if knob.numerics}
    assert precision_of(config(amp_dtype="float16", batch_size=3)) == {**usual, "amp_dtype": "float16"}
    assert full_precision(config(amp_dtype="float16", batch_size=3), facts()) == config(batch_size=3)
