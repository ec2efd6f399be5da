"""Branched trainings against what the noise scale foretells: the judgement, on courses whose truth is known."""

import math

import numpy as np
import pytest
from msgspec.structs import replace

from autotune.branches import Branch, BranchesResult
from autotune.goodput import judge, relative_samples
from autotune.gradients import NoiseScale
from autotune.launch.fake_branches import branched_losses
from autotune.noise_scale import GROWTH
from autotune.requests import BranchesRequest
from autotune.results import Outcome
from tests.worlds import config

NOISE = NoiseScale(phi=100.0, low=70.0, high=140.0, steps=30, has_fallen=True, samples=2048)


def branched(phi, *, batches=(32, 128, 512), samples=40_000, seed=0):
    """Courses of a training whose noise scale is really `phi`."""
    request = BranchesRequest(
        target="fake",
        config=config(batch_size=32),
        steps=30,
        branches=tuple(config(batch_size=batch) for batch in batches),
        phi=100.0,
        device="cpu",
        seed=seed,
    )
    return BranchesResult(outcome=Outcome.OK, branches=branched_losses(request, phi, samples))


def test_a_batch_needs_more_samples_as_it_grows_beyond_the_noise_scale():
    assert relative_samples(100, 1e-9, 100) == pytest.approx(2.0)
    assert relative_samples(32, 32, 100) == 1.0
    assert relative_samples(16, 32, 100) < 1.0 < relative_samples(64, 32, 100)


@pytest.mark.parametrize("batch", [128, 512])
def test_the_samples_that_a_batch_needs_are_read_off_the_losses(batch):
    truth = relative_samples(batch, 32, 100)
    checks = [judge(branched(100, seed=seed), NOISE, batch) for seed in range(20)]

    held = sum(check.low <= truth <= check.high for check in checks)
    assert held >= 15  # of 20 intervals of 90 %
    assert [check.observed for check in checks] == pytest.approx([truth] * 20, rel=0.15)
    assert {check.verdict for check in checks} == {"agrees"}
    assert checks[0].foretold == pytest.approx(truth)


@pytest.mark.parametrize(("phi", "batch"), [(2000, 512), (10, 512)])
def test_losses_of_another_noise_scale_do_not_agree(phi, batch):
    check = judge(branched(phi), NOISE, batch)

    assert check.verdict == "does not agree"
    assert check.low < relative_samples(batch, 32, phi) < check.high


def test_the_noise_scale_may_grow_as_it_does_during_training():
    grown = judge(branched(250), NOISE, 512)

    assert grown.verdict == "agrees"
    assert grown.foretold_low == pytest.approx(relative_samples(512, 32, GROWTH * 140))
    assert grown.high < relative_samples(512, 32, 140)  # without growth it would not


def test_a_smaller_batch_than_the_baselines_needs_fewer_samples():
    check = judge(branched(100, batches=(512, 128, 32)), NOISE, 32)

    assert check.verdict == "agrees"
    assert check.low < relative_samples(32, 512, 100) < check.high < 1
    assert check.foretold_low < check.foretold < check.foretold_high < 1


def test_only_the_samples_that_all_branches_have_are_compared():
    whole = branched(100)
    short = whole.branches[2]
    half = len(short.losses) // 2
    cut = replace(short, losses=short.losses[:half], samples=short.samples[:half])

    check = judge(replace(whole, branches=(*whole.branches[:2], cut)), NOISE, 128)

    assert check.samples == half * 512
    assert check.branches[0].loss > judge(whole, NOISE, 128).branches[0].loss  # it had come less far by then


def test_a_few_steps_resolve_nothing():
    check = judge(branched(100, samples=8_000), NOISE, 512)

    assert (check.verdict, check.observed) == ("not resolved", None)
    assert "512 came to fewer than about 24 steps" in check.why


def test_losses_that_scatter_resolve_nothing():
    draws = np.random.default_rng(0)

    def noisy(batch):
        losses = 2.3 - 0.001 * np.arange(100) + 0.5 * draws.standard_normal(100)
        return Branch(
            global_batch=batch,
            learning_rate_factor=1.0,
            optimizer="SGD",
            losses=tuple(losses.tolist()),
            samples=(batch,) * 100,
        )

    check = judge(BranchesResult(outcome=Outcome.OK, branches=(noisy(100), noisy(110))), NOISE, 110)

    assert check.verdict == "not resolved"
    assert "scatter" in check.why


@pytest.mark.parametrize(("broken", "verdict"), [(2, "does not agree"), (0, "not resolved")])
def test_a_batch_that_diverges_does_not_do_what_was_foretold(broken, verdict):
    branches = list(branched(100).branches)
    branches[broken] = replace(branches[broken], losses=(*branches[broken].losses[:-1], None))

    check = judge(BranchesResult(outcome=Outcome.OK, branches=tuple(branches)), NOISE, 512)

    assert check.verdict == verdict
    assert check.branches[broken].loss is None
    assert f"finite with a global batch of {branches[broken].global_batch}" in check.why


def test_an_interval_of_the_noise_scale_that_begins_at_nothing_foretells_that_all_is_wasted():
    check = judge(branched(100), replace(NOISE, low=0.0), 512)

    assert check.foretold_high == pytest.approx(512 / 32)
    assert math.isfinite(check.foretold_low)
