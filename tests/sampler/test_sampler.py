"""Samplers behind the guard: every proposal is new, admitted, and follows from the seed."""

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import TrialState

from autotune.core.records import Goal
from autotune.core.results import Trial
from autotune.sampler.encoding import Encoding
from autotune.sampler.grid import Hardware
from autotune.sampler.guard import Guard
from autotune.sampler.optuna import GuardedSampler, make_sampler
from tests.worlds import config, failed, measured, space

SMALL = space(Goal(global_batch=64, tune=("batch_size", "amp_dtype")))
SKEWED = space(Goal(), config(batch_size=48, num_workers=3))


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def _proposals(name, made, result_of, seed=0, most=100):
    """Ask until nothing remains; every proposal in order."""
    guard, encoding, found = Guard(made), Encoding(made), []
    sampler = GuardedSampler(make_sampler(name, seed, encoding, guard, Hardware()), encoding, guard)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    while guard.remaining() and len(found) < most:
        asked = study.ask(encoding.distributions)
        proposal = encoding.config(asked.params)
        assert proposal in encoding.configs
        assert guard.admits(proposal)
        result = result_of(proposal)
        guard.learn(Trial(number=len(found), purpose="search", config=proposal, result=result))
        found.append(proposal)
        asked.set_constraint("memory", -1.0 if result.measurement else 1.0)
        if result.measurement:
            study.tell(asked, result.measurement.samples_per_second)
        else:
            study.tell(asked, 0.0 if name == "gp" else None, state=None if name == "gp" else TrialState.PRUNED)
    return found


def _world(where):
    if where.batch_size * (2 if where["amp_dtype"] is None else 1) >= 64:
        return failed()
    return measured(100.0 + where.batch_size)


@pytest.mark.parametrize("name", ["structured", "tpe", "random"])
def test_a_whole_space_is_proposed_once_each_until_nothing_remains(name):
    found = _proposals(name, SMALL, lambda where: measured(100.0 + where.batch_size))

    assert len(found) == len(set(found)) == len(SMALL.configs)


@pytest.mark.parametrize("name", ["structured", "tpe", "random", "gp"])
def test_nothing_at_or_above_an_out_of_memory_is_proposed(name):
    made = SMALL if name != "gp" else space(Goal(global_batch=64, tune=("batch_size",)))

    found = _proposals(name, made, _world)

    assert len(found) == len(set(found))
    fits = {where for where in made.configs if _world(where).measurement}
    assert fits <= set(found)
    assert len(found) <= len(fits) + (2 if name == "gp" else 2 * 3)


@pytest.mark.parametrize("name", ["tpe", "random"])
def test_a_seed_decides_what_is_proposed(name):
    one, again, other = (_proposals(name, SKEWED, _world, seed, most=12) for seed in (3, 3, 4))

    assert one == again
    assert one != other


def test_the_gaussian_process_is_not_asked_again_for_what_it_would_repeat():
    guard, encoding, inner = Guard(SMALL), Encoding(SMALL), _InsistingProcess()
    guard.learn(Trial(number=0, purpose="search", config=SMALL.configs[0], result=measured()))
    study = optuna.create_study(sampler=GuardedSampler(inner, encoding, guard))

    proposal = encoding.config(study.ask(encoding.distributions).params)

    assert guard.admits(proposal)
    assert inner.asked == 1


@pytest.mark.parametrize("made", [SMALL, SKEWED, space()], ids=["small", "skewed", "held"])
def test_every_configuration_survives_its_encoding(made):
    encoding = Encoding(made)

    for where in made.configs:
        assert encoding.config(encoding.params(where)) == where


def test_ordered_knobs_are_searched_by_rank_and_others_as_categories():
    distributions = Encoding(SKEWED).distributions

    assert distributions["batch_size"] == IntDistribution(0, len(SKEWED.domains["batch_size"]) - 1)
    assert distributions["num_workers"] == IntDistribution(0, 5)
    assert distributions["amp_dtype"] == CategoricalDistribution((None, "bfloat16", "float16"))
    assert Encoding(SKEWED).params(SKEWED.complete({"batch_size": 48, "num_workers": 3}))["batch_size"] == 3


def test_a_configuration_outside_the_space_has_no_parameters():
    assert Encoding(SMALL).params(config(batch_size=48)) is None


def test_the_neighbour_taken_for_a_refused_proposal_is_a_near_one():
    guard, encoding = Guard(SMALL), Encoding(SMALL)
    for number, where in enumerate(SMALL.configs):
        if where["amp_dtype"] is not None or where.batch_size == 8:
            guard.learn(Trial(number=number, purpose="search", config=where, result=measured()))
    study = optuna.create_study(sampler=GuardedSampler(_Insisting(batch_size=0, amp_dtype=None), encoding, guard))

    proposal = encoding.config(study.ask(encoding.distributions).params)

    assert proposal.batch_size == 16
    assert proposal["amp_dtype"] is None


class _Insisting(optuna.samplers.BaseSampler):
    """Always proposes the same."""

    def __init__(self, **params):
        self._params = params

    def infer_relative_search_space(self, study, trial):
        return {}

    def sample_relative(self, study, trial, search_space):
        return dict(self._params)

    def sample_independent(self, study, trial, param_name, param_distribution):
        return self._params[param_name]


class _InsistingProcess(optuna.samplers.GPSampler):
    """Its acquisition function has one maximum, and it takes a second to find it."""

    asked = 0

    def sample_relative(self, study, trial, search_space):
        self.asked += 1
        return Encoding(SMALL).params(SMALL.configs[0])
