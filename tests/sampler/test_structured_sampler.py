"""The model-based sampler: what it learns, what it never proposes, and what it says about its proposals."""

import optuna
import pytest
from msgspec.structs import replace
from threadpoolctl import threadpool_info, threadpool_limits

from autotune.core.records import Goal
from autotune.core.results import IsolatedTiming, Outcome, Trial
from autotune.memory.model import PredictedPeak
from autotune.objectives.verdict import judge
from autotune.sampler import acquisition
from autotune.sampler.encoding import Encoding
from autotune.sampler.grid import Hardware
from autotune.sampler.guard import Guard
from autotune.sampler.observation import Observation, observed
from autotune.sampler.optuna import GuardedSampler, hardware, make_sampler
from autotune.testing import ENVIRONMENT
from tests.proposing import Proposals, space_of
from tests.worlds import GIB, failed, measured, space, study_request

BATCHES = tuple(2**exponent for exponent in range(3, 11))
DOMAINS = {"batch_size": BATCHES, "num_workers": tuple(range(9)), "amp_dtype": (None, "bfloat16")}
LIMIT = 10 * GIB


def _machine(params, limit=512):
    """A closed-form machine: bfloat16 halves the time and the memory of a sample; None above `limit` samples."""
    batch, workers, half = params["batch_size"], params["num_workers"], params["amp_dtype"] == "bfloat16"
    share = _share(params, limit)
    if share > 1:
        return Observation(outcome=Outcome.OOM_DEVICE, limit_bytes=LIMIT)
    compute = 0.01 + 2e-4 * (0.5 if half else 1.0) * batch
    load = batch * 4e-4 / max(1, min(workers, 6))
    return Observation(
        samples_per_second=batch / (compute + load if workers == 0 else max(compute, load)),
        compute_samples_per_second=batch / compute,
        loader_samples_per_second=batch / load,
        memory_bytes=int(share * LIMIT),
        limit_bytes=LIMIT,
    )


def _share(params, limit):
    return 0.1 + 0.9 * params["batch_size"] * (0.5 if params["amp_dtype"] else 1.0) / limit


def _proposals():
    """After a baseline."""
    proposals = Proposals(DOMAINS, hardware=Hardware(cores=8))
    start = {"batch_size": 32, "num_workers": 2, "amp_dtype": None}
    proposals.begin(_machine(start), **start)
    return proposals


def test_changes_are_those_of_the_baseline_and_not_of_the_best_so_far(monkeypatch):
    start = {"batch_size": 32, "num_workers": 2, "amp_dtype": None}
    proposals = Proposals(DOMAINS, hardware=Hardware(cores=8), baseline=space_of(**DOMAINS).complete(start))
    for values in (start, {**start, "amp_dtype": "bfloat16"}):
        proposals.begin(_machine(values), **values)
    ranked, seen = acquisition.ranked, []
    monkeypatch.setattr(acquisition, "ranked", lambda *given: (seen.append(given[3]), ranked(*given))[1])

    proposals.ask()

    assert seen[0][:2].tolist() == [1, 0]  # the best so far, and the baseline


def test_the_best_of_a_hundred_and_forty_four_is_found_in_six_probes_after_the_first():
    proposals = _proposals()

    proposals.search(_machine, 6)

    fastest = [_machine({"batch_size": b, "num_workers": 8, "amp_dtype": "bfloat16"}) for b in BATCHES]
    best = max(seen.samples_per_second or 0 for seen in fastest)
    assert proposals.study.best_value >= 0.95 * best


def test_four_workers_at_once_are_sent_to_four_places():
    proposals = _proposals()

    running = [proposals.ask() for _ in range(4)]

    assert len({repr(trial.params) for trial in running}) == 4


def test_four_workers_behind_the_guard_are_sent_to_four_places():
    made = space(Goal(global_batch=64))
    guard, encoding = Guard(made), Encoding(made)
    sampler = GuardedSampler(make_sampler("structured", 0, encoding, guard, hardware(ENVIRONMENT)), encoding, guard)
    study = optuna.create_study(direction="maximize", sampler=sampler)

    running = [encoding.config(study.ask(encoding.distributions).params) for _ in range(4)]

    assert len(set(running)) == 4


def test_what_is_running_is_not_proposed_even_where_all_else_is_worse():
    proposals = Proposals({"batch_size": (8, 16), "num_workers": (0, 1), "amp_dtype": (None, "bfloat16")})

    running = [proposals.ask() for _ in range(8)]

    assert len({repr(trial.params) for trial in running}) == 8


def test_a_running_trial_is_no_evidence_and_its_place_is_taken():
    alone = dict(_proposals().ask().params)
    proposals = _proposals()

    first, second = proposals.ask(), proposals.ask()

    assert dict(first.params) == alone
    assert dict(second.params) != alone


def test_what_it_proposes_follows_from_the_finished_trials_alone():
    """After a kill -9 another process opens the same storage, with a sampler that has seen nothing."""
    proposals, resumed = _proposals(), Proposals(DOMAINS, hardware=Hardware(cores=8))
    proposals.search(_machine, 2)
    resumed.study.add_trials(proposals.study.trials)
    resumed.tried |= proposals.tried

    assert resumed.ask().params == proposals.ask().params


def test_measured_memory_warns_before_the_first_out_of_memory():
    proposals = _proposals()
    for batch in (128, 256):
        start = {"batch_size": batch, "num_workers": 2, "amp_dtype": None}
        proposals.begin(_machine(start), **start)

    found = [params for params, _ in proposals.search(_machine, 6)]

    assert sum(_machine(params).outcome.out_of_memory for params in found) == 0
    assert any(params["batch_size"] == 512 for params in found)


def test_a_shape_run_keeps_it_from_what_does_not_fit():
    informed, alone = (
        Proposals(DOMAINS, shape_run=lambda config: PredictedPeak(share=_share(config, limit=20))),
        Proposals(DOMAINS),
    )

    overflows = [
        sum(_share(params, limit=20) > 1 for params, _ in one.search(lambda params: _machine(params, limit=40), 6))
        for one in (informed, alone)
    ]

    assert overflows[0] == 0
    assert overflows[1] > 0


def test_a_proposal_leaves_the_threads_of_the_process_as_they_were():
    proposals = _proposals()
    with threadpool_limits(3, user_api="blas"):
        proposals.ask()

        assert {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"} == {3}


def test_a_proposal_says_what_it_expects_and_the_measurement_lies_within():
    proposals = _proposals()
    proposals.search(_machine, 5)

    trial = proposals.ask()
    said, seen = proposals.sampler.prediction, _machine(proposals.values(trial))

    assert said.low * 0.9 < seen.samples_per_second < said.high * 1.1
    assert said.memory_bytes == pytest.approx(seen.memory_bytes, rel=0.15)
    assert 0.5 < said.fits <= 1
    assert said.gain is not None and said.gain >= 0


def test_it_is_told_that_nothing_much_is_left_once_the_best_was_found():
    proposals = _proposals()
    before = proposals.sampler.faster_elsewhere(proposals.study)

    proposals.search(_machine, 8)

    assert before > 0.3
    assert proposals.sampler.faster_elsewhere(proposals.study) < 0.15


def test_where_samples_per_second_are_not_what_counts_no_gain_is_promised():
    """Half the values are those of another power."""
    proposals = _proposals()
    for number in range(4):
        trial = proposals.ask()
        seen = _machine(proposals.values(trial))
        proposals.tell(trial, seen, seen.samples_per_second and seen.samples_per_second / (100 + 100 * (number % 2)))
    proposals.ask()

    assert proposals.sampler.prediction.gain is None
    assert proposals.sampler.faster_elsewhere(proposals.study) == float("inf")


def test_a_study_without_a_measurement_promises_nothing():
    proposals = Proposals(DOMAINS)

    assert proposals.sampler.faster_elsewhere(proposals.study) == float("inf")


def test_behind_the_guard_it_proposes_what_the_guard_admits():
    made = space(Goal(global_batch=64))
    guard, encoding = Guard(made), Encoding(made)
    sampler = GuardedSampler(make_sampler("structured", 0, encoding, guard, hardware(ENVIRONMENT)), encoding, guard)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    best = encoding.config(study.ask(encoding.distributions).params)
    study = optuna.create_study(direction="maximize", sampler=sampler)

    guard.learn(Trial(number=0, purpose="search", config=best, result=measured()))

    assert encoding.config(study.ask(encoding.distributions).params) != best


def test_the_machine_is_told_from_its_environment():
    host = replace(ENVIRONMENT, device="cpu", default_threads=4)

    assert hardware(ENVIRONMENT) == Hardware(cores=8, computes_on_cores=False)
    assert hardware(host) == Hardware(cores=8, computes_on_cores=True, threads=4)


def test_work_that_took_no_time_is_no_rate():
    result = measured()
    instant = replace(
        result, measurement=replace(result.measurement, compute_only=IsolatedTiming(seconds=(0.0,), samples=8))
    )

    seen = observed(instant, judge(instant, study_request()), GIB)

    assert seen.compute_samples_per_second is None


@pytest.mark.parametrize(
    ("result", "within"),
    [(measured(peak=GIB), True), (measured(peak=16 * GIB), False), (failed(), False), (failed(Outcome.TIMEOUT), None)],
)
def test_what_a_probe_tells_of_its_memory(result, within):
    request = study_request()
    seen = observed(result, judge(result, request), request.memory_limit_bytes - request.headroom_bytes)

    assert seen.within_memory is within


def test_what_a_limit_leaves_out_is_predicted_all_the_same():
    """The baseline's precision, say, where another one alone may be searched."""
    proposals = Proposals({"batch_size": (32, 64), "num_workers": (0, 2)})
    proposals.begin(Observation(samples_per_second=100.0), batch_size=32, num_workers=0)
    known = proposals.space.complete({"batch_size": 32, "num_workers": 0}).values

    same, half = proposals.sampler.expected(proposals.study, [known, known | {"amp_dtype": "bfloat16"}])

    assert same.samples_per_second == pytest.approx(100, rel=0.1)
    assert half.samples_per_second > 0
