"""What is compared next, given all that was compared before: the same answer now and after a resume."""

import msgspec
import pytest

from autotune.core.codes import Code
from autotune.core.records import Goal
from autotune.core.results import Failure, Outcome
from autotune.errors import EnvironmentUnfit, NoRecommendation
from autotune.precision.duration import CHECK_STEPS, SEED_SECONDS
from autotune.precision.judge import THRESHOLDS, settled
from autotune.precision.records import ROLES, PrecisionCheckRequest, PrecisionCheckResult
from autotune.precision.stage import MOST_STEPS, following, refused_summaries
from autotune.study import disk
from autotune.study.history import History
from autotune.testing import FakeLauncher
from autotune.testing.simulated_results import paired_losses
from tests.worlds import Listener, config, context, failed, measured, precise_finalists, study_request, trial

SEEDS = tuple(range(4, 16))
FIRST = PrecisionCheckRequest(
    target="model.py",
    reference=config(batch_size=32),
    candidate=config(batch_size=32, amp_dtype="bfloat16"),
    device="cuda:0",
    seeds=(4,),
    steps=CHECK_STEPS,
    max_seconds=40.0,
)


def _failed(outcome):
    return PrecisionCheckResult(outcome=outcome, failure=Failure(phase="measure", message="no", evidence="by hand"))


def _ran(request=FIRST, *, bad=False, wobble=0.0, spread=0.0):
    """A check whose perturbed runs are off by `wobble`, and whose seeds differ by `spread`."""

    def changed(run):
        if run.role == "perturbed":
            return tuple(loss + wobble * (-1) ** step for step, loss in enumerate(run.losses))
        if run.role == "candidate":
            return tuple(loss + spread * (run.seed - 4) * (-1) ** run.seed for loss in run.losses)
        return run.losses

    runs = tuple(
        msgspec.structs.replace(run, losses=changed(run)) for run in paired_losses(request, bad=bad)
    )  # fmt: skip
    return PrecisionCheckResult(outcome=Outcome.OK, runs=runs)


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


def _so_far(*attempts):
    return [(request, _ran(request, wobble=0.2, spread=0.1)) for request in attempts]


def test_runs_that_do_not_decide_are_followed_by_more_seeds_until_there_are_enough():
    attempts = [FIRST]
    while (request := _following(*_so_far(*attempts))) is not None:
        attempts.append(request)

    assert [request.seeds for request in attempts] == [SEEDS[:1], SEEDS[1:3], SEEDS[3:6], SEEDS[6:12]]
    assert {request.steps for request in attempts} == {CHECK_STEPS}


def test_three_seeds_that_decide_are_enough():
    several = _following((FIRST, _ran(wobble=0.2)))

    assert several.seeds == SEEDS[1:3]
    assert _following((FIRST, _ran(wobble=0.2)), (several, _ran(several, wobble=0.2))) is None


def test_more_seeds_are_compared_only_where_they_fit_into_the_time():
    slow = msgspec.structs.replace(_ran(wobble=0.2), elapsed_seconds=21.0)

    assert _following((FIRST, slow)) is None  # two more would take 42 of 40 s
    assert _following((FIRST, msgspec.structs.replace(slow, elapsed_seconds=19.0))) is not None


def _flat(request, seconds):
    """A check in whose runs no loss falls."""
    runs = [msgspec.structs.replace(run, losses=(2.3,) * request.steps) for run in _ran(request).runs]
    return request, PrecisionCheckResult(outcome=Outcome.OK, runs=tuple(runs), elapsed_seconds=seconds)


def test_where_full_precision_learns_nothing_more_steps_are_compared():
    attempts = [_flat(FIRST, 1.0)]
    while (request := _following(*attempts)) is not None:
        attempts.append(_flat(request, 4 * attempts[-1][1].elapsed_seconds))

    assert [(request.steps, request.seeds) for request, _ in attempts] == [
        (steps, SEEDS[:1]) for steps in (CHECK_STEPS, 4 * CHECK_STEPS, MOST_STEPS)
    ]


def test_more_steps_are_compared_only_where_they_leave_half_of_the_time_to_rounds():
    assert _following(_flat(FIRST, 5.1)) is None  # 20.4 of 40 s
    assert _following(_flat(FIRST, 4.9)) is not None


def test_more_steps_begin_with_the_first_seeds_again():
    several = msgspec.structs.replace(FIRST, seeds=SEEDS[1:3])

    assert _following((FIRST, _ran(wobble=0.2)), _flat(several, 1.0)).seeds == FIRST.seeds


def test_a_longer_check_that_fails_leaves_the_verdict_of_the_shorter_one():
    longer = _following(_flat(FIRST, 1.0))
    attempts = [_flat(FIRST, 1.0), (longer, _failed(Outcome.USER_ERROR))]

    assert _following(*attempts) is None
    assert [verdict.reason.code for verdict in settled(attempts)] == [Code.REFERENCE_LEARNS_NOTHING]


def test_a_check_of_more_steps_gets_half_of_the_time():
    longer = _following(_flat(FIRST, 1.0))

    assert longer.max_seconds == FIRST.max_seconds / 2
    noisy = msgspec.structs.replace(_ran(longer, wobble=0.2), elapsed_seconds=11.0)
    assert _following(_flat(FIRST, 1.0), (longer, noisy)) is None  # two more seeds would take 22 of 20 s


def test_more_steps_in_which_full_precision_learns_decide():
    longer = _following(_flat(FIRST, 1.0))

    attempts = [_flat(FIRST, 1.0), (longer, _ran(longer))]

    assert _following(*attempts) is None
    assert [verdict.verdict for verdict in settled(attempts)] == ["ok"]


def test_a_comparison_that_was_cut_short_is_worth_another_only_with_much_more_time():
    short = msgspec.structs.replace(FIRST, max_seconds=10.0)
    runs = tuple(msgspec.structs.replace(run, losses=run.losses[:5]) for run in _ran().runs)
    cut = (short, PrecisionCheckResult(outcome=Outcome.OK, runs=runs))

    assert _following(cut, first=msgspec.structs.replace(FIRST, max_seconds=19.0)) is None
    assert _following(cut, first=msgspec.structs.replace(FIRST, max_seconds=21.0)).max_seconds == 21.0


def test_no_comparison_may_take_longer_than_its_seeds_and_steps_deserve():
    several = msgspec.structs.replace(FIRST, seeds=SEEDS[:3], max_seconds=1e6)

    assert _following(first=msgspec.structs.replace(FIRST, max_seconds=1e6)).max_seconds == SEED_SECONDS
    assert _following(first=several).max_seconds == 3 * SEED_SECONDS


def _trials(*values):
    """Probes of the search, by rate and knobs."""
    return [trial(measured(rate), number, batch_size=64, **knobs) for number, (rate, knobs) in enumerate(values)]


TWO = _trials((100.0, {}), (200.0, {"amp_dtype": "bfloat16"}))


def _search(folder, trials=TWO, launcher=None, *, left=1000.0, listener=None, **changes):
    return context(folder, launcher, listener, request=study_request(**changes), left=left, trials=trials)


def _starting(trial, seconds=3.0):
    """A probe that took so long to start."""
    result = msgspec.structs.replace(trial.result, phase_seconds={"start": seconds})
    return msgspec.structs.replace(trial, result=result)


def _compared(search):
    precise_finalists(search)
    return search.history.precision_checks


def test_full_precision_is_compared_with_nothing(tmp_path):
    assert _compared(_search(tmp_path, _trials((100.0, {}), (90.0, {"num_workers": 2})))) == ()


def test_a_comparison_is_between_configurations_that_differ_in_arithmetic_only_and_draw_alike(tmp_path):
    fastest = {"amp_dtype": "bfloat16", "num_workers": 8, "gradient_accumulation_steps": 4, "channels_last": True}

    ((request, _),) = _compared(_search(tmp_path, _trials((200.0, fastest))))

    assert request.reference == config(batch_size=64, num_workers=8)
    assert request.candidate == config(batch_size=64, num_workers=8, amp_dtype="bfloat16")
    assert (request.seeds, request.steps, request.max_seconds) == ((0,), CHECK_STEPS, SEED_SECONDS)


def test_every_comparison_is_kept_in_the_study(tmp_path):
    search = _search(tmp_path)

    assert disk.attempts(tmp_path, PrecisionCheckRequest.kind()) == ()
    assert _compared(search) == disk.attempts(tmp_path, PrecisionCheckRequest.kind()) != ()


def test_the_batch_starts_below_what_is_known_not_to_fit(tmp_path):
    trials = [*TWO, trial(failed(Outcome.OOM_DEVICE), 7, batch_size=32)]

    assert _compared(_search(tmp_path, trials))[0][0].candidate.batch_size == 16


def test_what_does_not_fit_is_compared_at_a_smaller_batch(tmp_path):
    def too_large(request):
        return Outcome.OOM_DEVICE if request.reference.batch_size > 16 else None

    search = _search(tmp_path, launcher=FakeLauncher(faults={PrecisionCheckRequest: too_large}))

    assert len(_compared(search)) == 3
    (verdict,) = search.history.loss_verdicts
    assert (verdict.verdict, verdict.batch_size) == ("ok", 16)
    assert "at batch 16" in verdict.reason.text


def test_full_takes_three_seeds_from_the_studys_own(tmp_path):
    search = _search(tmp_path, goal=Goal(global_batch=64, stability="full"), seed=7)

    assert _compared(search)[0][0].seeds == (7, 8, 9)


def test_off_compares_nothing_and_refuses_nobody(tmp_path):
    off = _search(tmp_path, launcher=FakeLauncher(bad_dtypes=["bfloat16"]), goal=Goal(global_batch=64, stability="off"))

    assert precise_finalists(off)[0].config["amp_dtype"] == "bfloat16"
    assert off.history.precision_checks == ()


@pytest.mark.parametrize("stability", ["quick", "full"])
def test_losses_of_a_command_are_compared_by_a_process_for_each_run_of_one_seed(tmp_path, stability):
    search = _search(
        tmp_path, trials=[_starting(trial) for trial in TWO], target="-- python train.py {bf16:flag=false}",
        goal=Goal(global_batch=64, stability=stability), seed=7,
    )  # fmt: skip

    assert precise_finalists(search)[0].config["amp_dtype"] == "bfloat16"
    (request, result), *others = search.history.precision_checks
    assert not others
    assert (request.seeds, [run.role for run in result.runs]) == ((7,), list(ROLES))
    asked = [one for one, _ in disk.attempts(tmp_path, PrecisionCheckRequest.kind())]
    assert [one.roles for one in asked] == [(role,) for role in ROLES]
    assert sum(one.max_seconds + 3.0 for one in asked) == pytest.approx(request.max_seconds)  # each starts anew


def test_a_command_whose_precision_learns_less_gives_way(tmp_path):
    launcher = FakeLauncher(bad_dtypes=["bfloat16"])

    search = _search(tmp_path, target="-- python train.py {bf16:flag=false}", launcher=launcher)

    assert precise_finalists(search)[0].config["amp_dtype"] is None


def test_a_comparison_of_a_command_ends_with_the_first_run_that_fails(tmp_path):
    launcher = FakeLauncher(faults={PrecisionCheckRequest: lambda request: Outcome.TIMEOUT})

    search = _search(tmp_path, target="-- python train.py {bf16:flag=false}", launcher=launcher)

    precise_finalists(search)
    asked = [one for one, _ in disk.attempts(tmp_path, PrecisionCheckRequest.kind())]
    assert {one.roles for one in asked} == {("reference",)}
    assert [one.verdict for one in search.history.loss_verdicts] == ["inconclusive"]


def test_a_refused_arithmetic_gives_way_and_its_best_is_named(tmp_path):
    trials = _trials(
        (300.0, {"amp_dtype": "bfloat16"}), (250.0, {"amp_dtype": "bfloat16", "num_workers": 2}), (90.0, {})
    )
    search = _search(tmp_path, trials, FakeLauncher(bad_dtypes=["bfloat16"]))

    assert [one.config["amp_dtype"] for one in precise_finalists(search)] == [None]
    (refused,) = refused_summaries(search.history)
    assert (refused.found, refused.config["num_workers"]) == (pytest.approx(300.0), 0)
    assert refused.refused.code is Code.LEARNS_LESS


def test_the_next_best_dtype_is_compared_when_the_best_is_refused(tmp_path):
    trials = _trials(
        *((300.0 - n, {"amp_dtype": "float16", "num_workers": n}) for n in range(3)),
        (200.0, {"amp_dtype": "bfloat16"}), (90.0, {}),
    )  # fmt: skip
    search = _search(tmp_path, trials, FakeLauncher(bad_dtypes=["float16"]))

    assert precise_finalists(search)[0].config["amp_dtype"] == "bfloat16"
    verdicts = [(one.values["amp_dtype"], one.verdict) for one in search.history.loss_verdicts]
    assert verdicts == [("float16", "worse"), ("bfloat16", "ok")]


def test_the_baselines_arithmetic_is_judged_even_where_it_does_not_lead(tmp_path):
    baseline = config(batch_size=64, amp_dtype="float16")
    trials = _trials(*((300.0 - n, {"num_workers": n}) for n in range(3)), (100.0, {"amp_dtype": "float16"}))
    search = _search(tmp_path, trials, FakeLauncher(bad_dtypes=["float16"]), baseline=baseline)

    precise_finalists(search)

    assert search.history.refusal(baseline).code is Code.LEARNS_LESS
    assert refused_summaries(search.history) == []  # it stays in the confirmation, to be compared with


def test_what_the_study_holds_is_not_compared_again(tmp_path):
    search = _search(tmp_path, launcher=FakeLauncher(bad_dtypes=["bfloat16"]))
    precise_finalists(search)

    compared = len(search.history.precision_checks)

    assert [one.config["amp_dtype"] for one in precise_finalists(search)] == [None]
    assert len(search.history.precision_checks) == compared


def test_an_unfit_machine_ends_the_search_and_is_not_held_against_the_dtype(tmp_path):
    with pytest.raises(EnvironmentUnfit):
        precise_finalists(
            _search(
                tmp_path, launcher=FakeLauncher(faults={PrecisionCheckRequest: lambda request: Outcome.ENVIRONMENT})
            )
        )

    assert History.read(tmp_path, study_request()).precision_checks == ()


def test_without_time_nothing_is_compared_and_nobody_is_out(tmp_path):
    search = _search(tmp_path, left=0.0)

    chosen = precise_finalists(search)

    assert chosen
    assert search.history.precision_checks == ()


def test_what_is_compared_and_what_came_out_is_told(tmp_path):
    listener = Listener()

    precise_finalists(_search(tmp_path, launcher=FakeLauncher(bad_dtypes=["bfloat16"]), listener=listener))

    assert listener.notes[0] == "Comparing the losses of bf16 and fp32: 50 paired steps at batch 64."
    assert listener.notes[1].startswith("bf16 learns less than fp32: its loss decreases 10.6% less")
    assert listener.notes[1].endswith(" It is rejected.")


def test_a_baseline_that_is_all_there_is_and_is_refused_is_named(tmp_path):
    baseline = config(batch_size=64, amp_dtype="float16")
    trials = _trials((100.0, {"amp_dtype": "float16"}))
    search = _search(tmp_path, trials, FakeLauncher(bad_dtypes=["float16"]), baseline=baseline)

    with pytest.raises(NoRecommendation, match="fp16 learns less"):
        precise_finalists(search)
