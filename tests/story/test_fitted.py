"""A search leaves what it has learned: per arm and micro-batch, beside the study."""

import optuna

from autotune.core.records import Goal
from autotune.sampler.guard import Guard
from autotune.sampler.optuna import Encoding, GuardedSampler, hardware, make
from autotune.study import layout as disk
from autotune.testing import ENVIRONMENT, FakeLauncher
from tests.worlds import declared, searched, space


def test_a_search_leaves_what_it_expects_of_every_arm_and_batch(tmp_path):
    searched(tmp_path, FakeLauncher(facts=declared()), sampler="structured", probes=8, time_budget_seconds=1e6)

    fit = disk.read_fit(tmp_path)

    trials = [trial for trial in disk.read_trials(tmp_path) if trial.result.measurement is not None]
    best = max(trial.result.measurement.samples_per_second for trial in trials)
    domains = disk.read_request(tmp_path).domains
    batches = {point.values["batch_size"] for point in fit.points}
    assert batches == set(domains["batch_size"])
    assert len(fit.points) == len(batches) * len(domains["amp_dtype"]) * len(domains["channels_last"])
    assert max(point.expected.samples_per_second for point in fit.points) > 0.9 * best


def test_a_search_too_short_to_have_learned_leaves_nothing(tmp_path):
    searched(tmp_path, FakeLauncher(facts=declared()), sampler="structured", probes=2)

    assert disk.read_fit(tmp_path) is None


def test_a_sampler_without_a_law_has_learned_nothing_that_could_be_drawn():
    made = space(Goal(global_batch=64))
    guard, encoding = Guard(made), Encoding(made)

    fits = [
        GuardedSampler(make(name, 0, encoding, guard, hardware(ENVIRONMENT)), encoding, guard).fit(
            optuna.create_study(direction="maximize")
        )
        for name in ("tpe", "structured")
    ]

    assert fits == [None, None]
