"""What is compared next, given all that was compared before: the same answer now and after a resume."""

import msgspec
import pytest

from autotune import folder as disk
from autotune.errors import EnvironmentUnfit, NoRecommendation
from autotune.records import Goal
from autotune.requests import StabilityRequest
from autotune.results import Failure, Outcome, StabilityResult
from autotune.stability import THRESHOLDS
from autotune.testing import FakeLauncher
from autotune.testing.answers import paired_losses
from autotune.tuning.numerics import LEAST_SECONDS, SEED_SECONDS, STEPS, Numerics, following
from tests.worlds import Listener, config, failed, good, measured, study_request, trial

SEEDS = (4, 5, 6)
FIRST = StabilityRequest(
    target="model.py",
    reference=config(batch_size=32),
    candidate=config(batch_size=32, amp_dtype="bfloat16"),
    device="cuda:0",
    seeds=(4,),
    steps=STEPS,
    max_seconds=40.0,
)


def _failed(outcome):
    return StabilityResult(outcome=outcome, failure=Failure(phase="measure", message="no", evidence="by hand"))


def _ran(request=FIRST, *, bad=False, wobble=0.0, spread=0.0):
    """A comparison whose perturbed runs are off by `wobble`, and whose seeds differ by `spread`."""

    def changed(run):
        if run.role == "perturbed":
            return tuple(loss + wobble * (-1) ** step for step, loss in enumerate(run.losses))
        return tuple(loss + spread * (run.seed - 4) for loss in run.losses) if run.role == "candidate" else run.losses

    runs = tuple(
        msgspec.structs.replace(run, losses=changed(run)) for run in paired_losses(request, bad=bad)
    )  # fmt: skip
    return StabilityResult(outcome=Outcome.OK, runs=runs)


def _following(*attempts, first=FIRST):
    return following(attempts, first, SEEDS, THRESHOLDS)


def test_what_was_not_compared_is_compared():
    assert _following() == FIRST


@pytest.mark.parametrize("bad", [False, True])
def test_what_was_decided_stays_decided(bad):
    assert _following((FIRST, _ran(bad=bad))) is None


def test_out_of_memory_halves_the_batch_of_both_until_one_sample_is_left():
    batches, attempts = [], []
    request = FIRST
    while request is not None:
        assert request.reference.batch_size == request.candidate.batch_size
        batches.append(request.candidate.batch_size)
        attempts.append((request, _failed(Outcome.OOM_DEVICE)))
        request = _following(*attempts)

    assert batches == [32, 16, 8, 4, 2, 1]


def test_an_accident_is_tried_once_more_and_then_believed():
    crash = (FIRST, _failed(Outcome.CRASHED))

    assert _following(crash) == FIRST
    assert _following(crash, crash) is None
    assert _following(crash, (FIRST, _ran())) is None


@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.USER_ERROR, Outcome.INVALID_CONFIG])
def test_a_fault_that_would_repeat_is_not_tried_again(outcome):
    assert _following((FIRST, _failed(outcome))) is None


def test_runs_that_are_hardly_paired_are_followed_by_three_seeds_and_those_decide():
    several = _following((FIRST, _ran(wobble=0.2)))

    assert several.seeds == SEEDS
    assert _following((FIRST, _ran(wobble=0.2)), (several, _ran(several, wobble=0.2))) is None


def test_an_open_interval_doubles_the_steps_once():
    several = msgspec.structs.replace(FIRST, seeds=SEEDS)
    open_ended = (several, _ran(several, spread=0.1))

    longer = _following(open_ended, first=several)

    assert (longer.steps, longer.seeds) == (2 * STEPS, SEEDS)
    assert _following(open_ended, (longer, _ran(longer, spread=0.1)), first=several) is None


def test_a_comparison_that_was_cut_short_is_worth_another_only_with_much_more_time():
    short = msgspec.structs.replace(FIRST, max_seconds=10.0)
    runs = tuple(msgspec.structs.replace(run, losses=run.losses[:5]) for run in _ran().runs)
    cut = (short, StabilityResult(outcome=Outcome.OK, runs=runs))

    assert _following(cut, first=msgspec.structs.replace(FIRST, max_seconds=19.0)) is None
    assert _following(cut, first=msgspec.structs.replace(FIRST, max_seconds=21.0)).max_seconds == 21.0


def test_no_comparison_may_take_longer_than_its_seeds_and_steps_deserve():
    several = msgspec.structs.replace(FIRST, seeds=SEEDS, max_seconds=1e6)

    assert _following(first=msgspec.structs.replace(FIRST, max_seconds=1e6)).max_seconds == SEED_SECONDS
    assert _following(first=several).max_seconds == 3 * SEED_SECONDS


def _numerics(folder, launcher=None, spare=1000.0, listener=None, **changes):
    return Numerics(
        folder, study_request(**changes), launcher or FakeLauncher(), listener or Listener(), lambda: spare
    )  # fmt: skip


def _judged(*values):
    return [
        (trial(measured(rate), number, batch_size=64, **settings), good(rate))
        for number, (rate, settings) in enumerate(values)
    ]


TWO = _judged((100.0, {}), (200.0, {"amp_dtype": "bfloat16"}))


def test_full_precision_is_compared_with_nothing(tmp_path):
    _numerics(tmp_path).leaders(_judged((100.0, {}), (90.0, {"num_workers": 2})))

    assert disk.attempts(tmp_path, StabilityRequest.kind()) == ()


def test_a_comparison_is_between_configurations_that_differ_in_arithmetic_only_and_draw_alike(tmp_path):
    leading = {"amp_dtype": "bfloat16", "num_workers": 8, "gradient_accumulation_steps": 4, "channels_last": True}

    _numerics(tmp_path).leaders(_judged((200.0, leading)))

    ((request, _),) = disk.attempts(tmp_path, StabilityRequest.kind())
    assert request.reference == config(batch_size=64, num_workers=8)
    assert request.candidate == config(batch_size=64, num_workers=8, amp_dtype="bfloat16")
    assert (request.seeds, request.steps, request.max_seconds) == ((0,), STEPS, SEED_SECONDS)


def test_the_batch_starts_below_what_is_known_not_to_fit(tmp_path):
    judged = [*TWO, (trial(failed(Outcome.OOM_DEVICE), 7, batch_size=32), good(1.0))]

    _numerics(tmp_path).leaders(judged)

    assert disk.attempts(tmp_path, StabilityRequest.kind())[0][0].candidate.batch_size == 16


def test_what_does_not_fit_is_compared_at_a_smaller_batch(tmp_path):
    def too_large(request):
        return Outcome.OOM_DEVICE if request.reference.batch_size > 16 else None

    numerics = _numerics(tmp_path, FakeLauncher(faults={StabilityRequest: too_large}))

    numerics.leaders(TWO)

    (verdict,) = numerics.verdicts
    assert (verdict.verdict, verdict.batch_size) == ("ok", 16)
    assert "at batch 16" in verdict.reason
    assert len(disk.attempts(tmp_path, StabilityRequest.kind())) == 3


def test_full_takes_three_seeds_from_the_studys_own(tmp_path):
    _numerics(tmp_path, goal=Goal(global_batch=64, stability="full"), seed=7).leaders(TWO)

    assert disk.attempts(tmp_path, StabilityRequest.kind())[0][0].seeds == (7, 8, 9)


def test_off_compares_nothing_and_refuses_nobody(tmp_path):
    _numerics(tmp_path, FakeLauncher(bad_dtypes=["bfloat16"])).leaders(TWO)
    off = _numerics(tmp_path / "off", goal=Goal(global_batch=64, stability="off"))

    assert off.leaders(TWO)[0].config["amp_dtype"] == "bfloat16"
    assert disk.attempts(tmp_path / "off", StabilityRequest.kind()) == ()


def test_a_refused_arithmetic_gives_way_and_its_best_is_named(tmp_path):
    judged = _judged(
        (300.0, {"amp_dtype": "bfloat16"}), (250.0, {"amp_dtype": "bfloat16", "num_workers": 2}), (90.0, {})
    )
    numerics = _numerics(tmp_path, FakeLauncher(bad_dtypes=["bfloat16"]))

    leaders = numerics.leaders(judged)

    assert [candidate.config["amp_dtype"] for candidate in leaders] == [None]
    (refused,) = numerics.refused(judged)
    assert (refused.found, refused.config["num_workers"]) == (300.0, 0)
    assert refused.refused.startswith("bf16 learns less than fp32: behind by 10.6%")


def test_the_next_best_dtype_is_compared_when_the_best_is_refused(tmp_path):
    judged = _judged(*((300.0 - n, {"amp_dtype": "float16", "num_workers": n}) for n in range(3)))
    judged += _judged((200.0, {"amp_dtype": "bfloat16"}), (90.0, {}))
    numerics = _numerics(tmp_path, FakeLauncher(bad_dtypes=["float16"]))

    leaders = numerics.leaders(judged)

    assert [(v.values["amp_dtype"], v.verdict) for v in numerics.verdicts] == [("float16", "worse"), ("bfloat16", "ok")]
    assert leaders[0].config["amp_dtype"] == "bfloat16"


def test_the_baselines_arithmetic_is_judged_even_where_it_does_not_lead(tmp_path):
    baseline = config(batch_size=64, amp_dtype="float16")
    judged = _judged(*((300.0 - n, {"num_workers": n}) for n in range(3)), (100.0, {"amp_dtype": "float16"}))
    numerics = _numerics(tmp_path, FakeLauncher(bad_dtypes=["float16"]), baseline=baseline)

    numerics.leaders(judged)

    assert "learns less" in numerics.refusal(baseline)
    assert numerics.refused(judged) == []  # it stays in the run-off, to be compared with


def test_what_the_study_holds_is_not_compared_again(tmp_path):
    _numerics(tmp_path, FakeLauncher(bad_dtypes=["bfloat16"])).leaders(TWO)

    again = _numerics(tmp_path, FakeLauncher(faults={StabilityRequest: lambda request: pytest.fail("compared again")}))

    assert [candidate.config["amp_dtype"] for candidate in again.leaders(TWO)] == [None]


def test_an_unfit_machine_ends_the_search_and_is_not_held_against_the_dtype(tmp_path):
    unfit = FakeLauncher(faults={StabilityRequest: lambda request: Outcome.ENVIRONMENT})
    with pytest.raises(EnvironmentUnfit):
        _numerics(tmp_path, unfit).leaders(TWO)

    numerics = _numerics(tmp_path)
    numerics.leaders(TWO)

    assert [verdict.verdict for verdict in numerics.verdicts] == ["ok"]


def test_a_late_comparison_still_gets_its_least_time(tmp_path):
    _numerics(tmp_path, spare=-100.0).leaders(TWO)

    assert disk.attempts(tmp_path, StabilityRequest.kind())[0][0].max_seconds == LEAST_SECONDS


def test_what_is_compared_and_what_came_out_is_told(tmp_path):
    listener = Listener()

    _numerics(tmp_path, FakeLauncher(bad_dtypes=["bfloat16"]), listener=listener).leaders(TWO)

    assert listener.notes[0] == "Comparing the losses of bf16 and fp32: 50 paired steps at batch 64."
    assert listener.notes[1].startswith("bf16 learns less than fp32: behind by 10.6%")
    assert listener.notes[1].endswith(" It is left out.")


def test_time_is_kept_for_a_comparison_only_while_one_may_come(tmp_path):
    numerics = _numerics(tmp_path)
    off = _numerics(tmp_path, goal=Goal(global_batch=64, stability="off"))
    domains = {**study_request().domains, "amp_dtype": (None, "bfloat16")}
    plain = _numerics(tmp_path, domains={**domains, "amp_dtype": (None,)})
    narrow = _numerics(tmp_path, domains=domains)

    kept = [each.reserve_seconds(TWO) > 0 for each in (numerics, off, plain, narrow)]
    narrow.leaders(TWO)

    assert kept == [True, False, False, True]
    assert narrow.reserve_seconds(TWO) == 0.0


def test_the_time_for_a_comparison_follows_the_pace_of_the_fastest_probe_and_then_what_one_took(tmp_path):
    numerics = _numerics(tmp_path)
    before = [numerics.reserve_seconds(_judged((rate, {}))) for rate in (2400.0, 1200.0, 1.0)]

    numerics.leaders(TWO)

    ((_, compared),) = disk.attempts(tmp_path, StabilityRequest.kind())
    assert before == [pytest.approx(1.5 * 150 * 64 / 2400), pytest.approx(1.5 * 150 * 64 / 1200), SEED_SECONDS]
    assert numerics.reserve_seconds(TWO) == compared.elapsed_seconds


def test_a_baseline_that_is_all_there_is_and_is_refused_is_named(tmp_path):
    baseline = config(batch_size=64, amp_dtype="float16")
    numerics = _numerics(tmp_path, FakeLauncher(bad_dtypes=["float16"]), baseline=baseline)

    with pytest.raises(NoRecommendation, match="fp16 learns less"):
        numerics.leaders(_judged((100.0, {"amp_dtype": "float16"})))
