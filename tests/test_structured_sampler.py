"""The structured sampler: what it learns, what it never proposes, and what it says about its proposals."""

import optuna
import pytest
from msgspec.structs import replace
from optuna.trial import TrialState
from threadpoolctl import threadpool_info, threadpool_limits

from autotune.forecast import Foretold
from autotune.guard import Guard
from autotune.objective import judge
from autotune.prediction import Prediction
from autotune.records import Goal
from autotune.results import Alone, Outcome, Trial
from autotune.sampler import Encoding, GuardedSampler, hardware, make
from autotune.structured.grid import Hardware
from autotune.structured.observation import ATTRIBUTE, Observation, observed
from autotune.structured.sampler import StructuredSampler, predicted
from autotune.structured.spaces import grid_of
from autotune.testing import ENVIRONMENT
from tests.worlds import GIB, failed, measured, space, study_request

BATCHES = tuple(2**exponent for exponent in range(3, 11))
SPACE = {
    "batch_size": optuna.distributions.CategoricalDistribution(BATCHES),
    "num_workers": optuna.distributions.IntDistribution(0, 8),
    "amp_dtype": optuna.distributions.CategoricalDistribution((None, "bfloat16")),
}
LIMIT = 10 * GIB


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def _machine(params, *, per_sample=2e-4, limit=512, extra=1.0):
    """A closed-form machine: bfloat16 halves the time and the memory of a sample; None above `limit` samples."""
    batch, workers, half = params["batch_size"], params["num_workers"], params["amp_dtype"] == "bfloat16"
    share = _share(params, limit)
    if share > 1:
        return Observation(outcome=Outcome.OOM_DEVICE, limit_bytes=LIMIT)
    compute = (0.01 + per_sample * (0.5 if half else 1.0) * batch) * extra
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


def _tell(study, trial, seen):
    for name, attribute in seen.attributes().items():
        trial.set_user_attr(name, attribute)
    if seen.samples_per_second is None:
        study.tell(trial, state=TrialState.PRUNED)
    else:
        study.tell(trial, seen.samples_per_second)


def _study(sampler=None, **options):
    sampler = sampler or StructuredSampler(space=SPACE, seed=0, hardware=Hardware(cores=8))
    return optuna.create_study(direction="maximize", sampler=sampler, **options)


def _begun(study, out_of_memory=False, **changes):
    start = {"batch_size": 32, "num_workers": 2, "amp_dtype": None, **changes}
    study.enqueue_trial(start)
    seen = Observation(outcome=Outcome.OOM_DEVICE) if out_of_memory else _machine(start)
    _tell(study, study.ask(SPACE), seen)


def _search(study, probes, **machine):
    proposals = []
    for _ in range(probes):
        trial = study.ask(SPACE)
        proposals.append(dict(trial.params))
        _tell(study, trial, _machine(trial.params, **machine))
    return proposals


def test_the_best_of_a_hundred_and_forty_four_is_found_in_six_probes_after_the_first():
    study = _study()
    _begun(study)

    _search(study, 6)

    fastest = [_machine({"batch_size": b, "num_workers": 8, "amp_dtype": "bfloat16"}) for b in BATCHES]
    best = max(seen.samples_per_second or 0 for seen in fastest)
    assert study.best_value >= 0.95 * best


def test_nothing_is_proposed_twice_until_everything_was():
    small = {**SPACE, "batch_size": optuna.distributions.CategoricalDistribution((8, 16)),
             "num_workers": optuna.distributions.IntDistribution(0, 1)}  # fmt: skip
    study = optuna.create_study(direction="maximize", sampler=StructuredSampler(space=small, seed=0))

    for _ in range(8):
        trial = study.ask(small)
        _tell(study, trial, _machine(trial.params))

    assert len({repr(trial.params) for trial in study.trials}) == 8


def test_four_workers_at_once_are_sent_to_four_places():
    study = _study()
    _begun(study)

    running = [study.ask(SPACE) for _ in range(4)]

    assert len({repr(trial.params) for trial in running}) == 4


def test_four_workers_behind_the_guard_are_sent_to_four_places():
    made = space(Goal(global_batch=64))
    guard, encoding = Guard(made), Encoding(made)
    sampler = GuardedSampler(make("structured", 0, encoding, guard, hardware(ENVIRONMENT)), encoding, guard)
    study = optuna.create_study(direction="maximize", sampler=sampler)

    running = [encoding.config(study.ask(encoding.distributions).params) for _ in range(4)]

    assert len(set(running)) == 4


def test_what_is_running_is_not_proposed_even_where_all_else_is_worse():
    small = {**SPACE, "batch_size": optuna.distributions.CategoricalDistribution((8, 16)),
             "num_workers": optuna.distributions.IntDistribution(0, 1)}  # fmt: skip
    study = optuna.create_study(direction="maximize", sampler=StructuredSampler(space=small, seed=0))

    running = [study.ask(small) for _ in range(8)]

    assert len({repr(trial.params) for trial in running}) == 8


def test_workers_that_ask_at_the_same_moment_are_sent_apart():
    """Trials exist before they have parameters: whoever decides meanwhile must leave them the better places."""
    study = _study()
    _begun(study)
    begun = [study._storage.get_trial(study._storage.create_new_trial(study._study_id)) for _ in range(4)]

    proposals = [study.sampler.sample_relative(study, trial, SPACE) for trial in begun]

    assert len({repr(params) for params in proposals}) == 4


def test_a_running_trial_is_no_evidence_and_its_place_is_taken():
    study, other = _study(), _study()
    _begun(study)
    _begun(other)
    alone = dict(other.ask(SPACE).params)

    first, second = study.ask(SPACE), study.ask(SPACE)

    assert dict(first.params) == alone
    assert dict(second.params) != alone


def test_what_it_proposes_follows_from_the_finished_trials_alone(tmp_path):
    """After a kill -9 another process opens the same storage, with a sampler that has seen nothing."""
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = _study(storage=url, study_name="one")
    _begun(study)
    _search(study, 2)
    copy = _study()
    copy.add_trials(study.trials)

    resumed = optuna.load_study(
        study_name="one", storage=url, sampler=StructuredSampler(space=SPACE, seed=0, hardware=Hardware(cores=8))
    )

    assert resumed.ask(SPACE).params == copy.ask(SPACE).params


def test_nothing_at_or_above_an_out_of_memory_of_its_arm_is_proposed():
    study = _study()
    _begun(study)
    _begun(study, batch_size=64, out_of_memory=True)

    proposals = _search(study, 12)

    assert all(params["batch_size"] < 64 for params in proposals if params["amp_dtype"] is None)


def test_an_out_of_memory_is_believed_against_a_dry_run_that_saw_none():
    grid = grid_of(SPACE, (), seed=0)
    study = _study(StructuredSampler(space=SPACE, seed=0, grid=grid, foretold=lambda row: Foretold(share=0.001)))
    _begun(study, batch_size=64, out_of_memory=True)

    proposals = _search(study, 12)

    assert all(params["batch_size"] < 64 for params in proposals if params["amp_dtype"] is None)


def test_measured_memory_warns_before_the_first_out_of_memory():
    study = _study()
    _begun(study, batch_size=128)
    _begun(study, batch_size=256)

    proposals = _search(study, 6)

    assert sum(_machine(params).outcome.out_of_memory for params in proposals) == 0
    assert any(params["batch_size"] == 512 for params in proposals)


def test_a_dry_run_keeps_it_from_what_does_not_fit():
    grid = grid_of(SPACE, (), seed=0)
    told = [Foretold(share=_share(params, limit=40)) for params in grid.params]
    informed, alone = (
        _study(StructuredSampler(space=SPACE, seed=0, grid=grid, foretold=foretold))
        for foretold in (told.__getitem__, None)
    )

    overflows = [
        sum(_share(params, limit=40) > 1 for params in _search(study, 6, limit=40)) for study in (informed, alone)
    ]

    assert overflows[0] == 0
    assert overflows[1] > 0


def test_a_proposal_leaves_the_threads_of_the_process_as_they_were():
    study = _study()
    _begun(study)
    with threadpool_limits(3, user_api="blas"):
        study.ask(SPACE)

        assert {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"} == {3}


def test_a_proposal_says_what_it_expects_and_the_measurement_lies_within():
    study = _study()
    _begun(study)
    _search(study, 5)

    trial = study.ask(SPACE)
    said, seen = predicted(study, trial.number), _machine(trial.params)

    assert isinstance(said, Prediction)
    assert said.low * 0.9 < seen.samples_per_second < said.high * 1.1
    assert said.memory_bytes == pytest.approx(seen.memory_bytes, rel=0.15)
    assert 0.5 < said.fits <= 1
    assert said.gain is not None and said.gain >= 0


def test_it_is_told_that_nothing_much_is_left_once_the_best_was_found():
    study = _study()
    _begun(study)
    before = study.sampler.faster_elsewhere(study)

    _search(study, 8)

    assert before > 0.3
    assert study.sampler.faster_elsewhere(study) < 0.15


def test_a_study_without_a_measurement_promises_nothing():
    assert _study().sampler.faster_elsewhere(_study()) == float("inf")


def test_a_parameter_that_nobody_declared_is_learned_as_a_category():
    space = {**SPACE, "allocator": optuna.distributions.CategoricalDistribution(("a", "b", "c"))}
    study = optuna.create_study(direction="maximize", sampler=StructuredSampler(space=space, seed=0))
    for _ in range(12):
        trial = study.ask(space)
        _tell(study, trial, _machine(trial.params, extra={"a": 1.5, "b": 0.6, "c": 1.5}[trial.params["allocator"]]))

    assert study.best_params["allocator"] == "b"


def test_seconds_per_sample_may_be_minimised():
    study = optuna.create_study(direction="minimize", sampler=StructuredSampler(space=SPACE, seed=0))

    study.optimize(lambda trial: _seconds(trial), n_trials=10, catch=())

    assert study.best_value <= 1.1 * min(
        1 / rate for b in BATCHES
        for rate in [_machine({"batch_size": b, "num_workers": 6, "amp_dtype": "bfloat16"}).samples_per_second] if rate
    )  # fmt: skip


def _seconds(trial):
    params = {name: trial._suggest(name, distribution) for name, distribution in SPACE.items()}
    seen = _machine(params)
    if seen.samples_per_second is None:
        trial.set_user_attr(ATTRIBUTE, {"outcome": "oom-device"})
        raise optuna.TrialPruned
    return 1 / seen.samples_per_second


def test_a_failed_trial_is_tried_once_more_and_not_for_ever():
    study = _study()
    _begun(study)
    places = []
    for _ in range(3):
        trial = study.ask(SPACE)
        places.append(repr(trial.params))
        study.tell(trial, state=TrialState.FAIL)

    assert places.count(places[0]) <= 2
    assert len(set(places)) >= 2


def test_behind_the_guard_it_proposes_what_the_guard_admits():
    made = space(Goal(global_batch=64))
    guard, encoding = Guard(made), Encoding(made)
    sampler = GuardedSampler(make("structured", 0, encoding, guard, hardware(ENVIRONMENT)), encoding, guard)
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
    instant = replace(result, measurement=replace(result.measurement, compute_only=Alone(seconds=(0.0,), samples=8)))

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
