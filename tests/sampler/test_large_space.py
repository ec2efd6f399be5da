"""A space of hundreds of thousands of configurations: no list of them, and no more probes for knobs that do nothing."""

import math

import optuna
import pytest

from autotune.core.results import Outcome
from autotune.knobs.influence import Factor, Influence
from autotune.sampler.configurations import Configurations
from autotune.sampler.encoding import Encoding
from autotune.sampler.grid import Hardware
from autotune.sampler.guard import Guard
from autotune.sampler.observation import Observation
from autotune.sampler.optuna import GuardedSampler, make_sampler
from tests.knobs_beside import Beside, register
from tests.proposing import Proposals, space_of

BATCHES = tuple(2**exponent for exponent in range(3, 13))
LIMIT = 16 * 2**30
PLAIN = {"batch_size": BATCHES, "num_workers": (0, 1, 2, 4, 8), "amp_dtype": (None, "bfloat16")}
PROMISING = Influence(sample_time=Factor(0.8, 0.2))


def _machine(values, gains):
    """A closed-form machine; `gains` has the time of a sample with each knob that is not 0, as a share."""
    factor = math.prod(gains[name] for name, value in values.items() if value and name in gains)
    batch = values["batch_size"]
    share = 0.1 + 0.7 * batch / 1024
    if share > 1:
        return Observation(outcome=Outcome.OOM_DEVICE, limit_bytes=LIMIT)
    compute = 0.005 + 2e-4 * factor * (0.5 if values["amp_dtype"] else 1.0) * batch
    load = batch * 1e-4 / max(1, values["num_workers"])
    return Observation(
        samples_per_second=batch / (max(compute, load) if values["num_workers"] else compute + load),
        compute_samples_per_second=batch / compute, loader_samples_per_second=batch / load,
        memory_bytes=int(share * LIMIT), limit_bytes=LIMIT,
    )  # fmt: skip


def _begun(monkeypatch, beside, gains):
    register(monkeypatch, *beside)
    proposals = Proposals(PLAIN | {one.name: one.counts for one in beside}, hardware=Hardware(cores=8))
    start = dict.fromkeys(proposals.domains, 0) | {"batch_size": 32, "num_workers": 2, "amp_dtype": None}
    proposals.begin(_machine(start, gains), **start)
    return proposals


@pytest.fixture
def nobody_lists(monkeypatch):
    def refuse(self):
        raise AssertionError("all configurations were listed")

    monkeypatch.setattr(Configurations, "__iter__", refuse)


def test_the_best_of_two_hundred_thousand_is_found_in_eight_probes_without_a_list(monkeypatch, nobody_lists):
    beside = [Beside(f"beside{number}", 4, effect=PROMISING if number < 2 else Influence()) for number in range(6)]
    gains = {"beside0": 0.75}
    proposals = _begun(monkeypatch, beside, gains)

    proposals.search(lambda values: _machine(values, gains), 8)

    fastest = {"batch_size": 1024, "num_workers": 8, "amp_dtype": "bfloat16", "beside0": 1}
    assert len(proposals.space.configs) > 200_000
    assert proposals.study.best_value >= 0.95 * _machine(fastest, gains).samples_per_second


def test_what_promises_much_is_tried_before_what_promises_little(monkeypatch):
    beside = [Beside("much", 2, effect=PROMISING), Beside("little", 2, effect=Influence(sample_time=Factor(1.0, 0.02)))]
    proposals = _begun(monkeypatch, beside, {})

    assert proposals.values(proposals.ask())["much"] == 1


def test_a_knob_that_did_nothing_twice_promises_nothing_any_more(monkeypatch):
    """Neither alone nor with another knob, of which much is expected still."""
    proposals = _begun(monkeypatch, [Beside("idle", 2), Beside("other", 2)], {})
    best = {"batch_size": 512, "num_workers": 4, "amp_dtype": "bfloat16", "idle": 0, "other": 0}
    proposals.begin(_machine(best, {}), **best)
    before = _gain(proposals, best | {"idle": 1})
    for batch in (256, 1024):
        idle = best | {"batch_size": batch, "idle": 1}
        proposals.begin(_machine(idle, {}), **idle)

    after, other, both = (
        _gain(proposals, best | changed) for changed in ({"idle": 1}, {"other": 1}, {"other": 1, "idle": 1})
    )

    assert before > 0.1
    assert after < 0.02  # what the exploration takes for little
    assert other > 0.05
    assert both < 1.2 * other


def _gain(proposals, values):
    return proposals.sampler.expected(proposals.study, [proposals.space.complete(values).values])[0].gain


@pytest.mark.parametrize("name", ["structured", "tpe", "random"])
def test_every_sampler_proposes_without_a_list(name, monkeypatch, nobody_lists):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    register(monkeypatch, *(Beside(f"beside{number}", 8) for number in range(5)))
    made = space_of(**PLAIN, **{f"beside{number}": tuple(range(8)) for number in range(5)})
    guard, encoding = Guard(made), Encoding(made)
    sampler = GuardedSampler(make_sampler(name, 0, encoding, guard, Hardware()), encoding, guard)
    study = optuna.create_study(direction="maximize", sampler=sampler)

    proposed = {encoding.config(study.ask(encoding.distributions).params) for _ in range(3)}

    assert len(proposed) == 3
    assert all(guard.admits(one) for one in proposed)
    assert all(guard.admits(one) for one in guard.remaining())
