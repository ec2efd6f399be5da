"""How many seconds a probe takes, and what the model-based sampler makes of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace

from autotune.core.probe_duration import MEASURING_SECONDS, STEP_UP, ProbeDuration
from autotune.core.requests import FEWEST_PROBE_STEPS
from autotune.sampler.acquisition import Predictions, ranked
from autotune.sampler.grid import Hardware
from autotune.sampler.observation import Observation
from tests.proposing import Proposals

DURATION = ProbeDuration(fixed_seconds=2.0, longest_cycle=2)
DOMAINS = {"batch_size": tuple(2**n for n in range(3, 12)), "gradient_accumulation_steps": (1, 2, 4)}
START = {"batch_size": 32, "gradient_accumulation_steps": 1}


def long_steps(params: dict[str, int]) -> Observation:
    """A machine that takes 10 ms for each sample, larger batches being hardly worth their time."""
    batch, steps = params["batch_size"], params["gradient_accumulation_steps"]
    compute = steps * (0.1 + 0.01 * batch) + 0.05
    return Observation(samples_per_second=steps * batch / compute, compute_samples_per_second=steps * batch / compute,
                       loader_samples_per_second=1e5, memory_bytes=batch, limit_bytes=10_000)  # fmt: skip


def proposals(most_seconds: float = math.inf) -> Proposals:
    duration = replace(DURATION, most_seconds=most_seconds)
    made = Proposals(DOMAINS, hardware=Hardware(cores=8), probe_duration=lambda: duration)
    made.begin(long_steps(START), **START)
    return made


def seconds(params: dict[str, int]) -> float:
    seen, steps = long_steps(params), params["gradient_accumulation_steps"]
    assert seen.samples_per_second is not None
    return float(DURATION.seconds(params["batch_size"] / seen.samples_per_second, steps))


def test_short_steps_cost_the_same_and_long_ones_their_cycles_of_two() -> None:
    found = DURATION.seconds(np.array([0.001, 0.1, 1.0, 1.0]), np.array([1, 1, 1, 8]))

    assert found == pytest.approx([2 + MEASURING_SECONDS] * 2 + [2 + FEWEST_PROBE_STEPS, 2 + 2 * FEWEST_PROBE_STEPS])


def test_of_two_that_promise_as_much_the_cheaper_probe_comes_first() -> None:
    predicted = Predictions(rates=np.array([[100.0, 200.0, 201.0]]), fits=np.ones((1, 3)), memory=np.ones(3))
    gain, workers, changes = np.array([0.0, 100.0, 101.0]), np.array([1.0, 1.0, 1.0]), np.array([0, 1, 1])

    assert ranked(predicted, gain, workers, changes)[0] in (1, 2)
    assert ranked(predicted, gain, workers, changes, np.array([5.0, 40.0, 10.0])).tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("workers", "changes", "first"), [([0, 0, 0], [3, 1, 2], 1), ([0, 4, 1], [3, 1, 2], 0), ([1, 1, 1], [2, 2, 2], 2)]
)
def test_of_nearly_equal_ones_fewer_workers_come_first_and_then_fewer_changes(
    workers: list[float], changes: list[int], first: int
) -> None:
    predicted = Predictions(rates=np.array([[199.0, 198.0, 200.0]]), fits=np.ones((1, 3)), memory=np.ones(3))
    gain = np.array([99.0, 98.0, 100.0])

    assert ranked(predicted, gain, np.array(workers, float), np.array(changes))[0] == first


def test_the_first_step_up_is_bounded_by_what_the_baseline_took() -> None:
    most = STEP_UP * seconds(START)

    params, _ = proposals(most).search(long_steps, 1)[0]

    assert params["batch_size"] < max(DOMAINS["batch_size"])
    assert seconds(params) <= 1.5 * most  # it is a prediction that is bounded


def test_where_no_probe_is_short_enough_the_shortest_is_proposed() -> None:
    params, _ = proposals(most_seconds=0.0).search(long_steps, 1)[0]

    assert seconds(params) == pytest.approx(2 + MEASURING_SECONDS)


def test_the_gain_that_decides_whether_to_go_on_is_that_of_the_most_promising_and_not_of_the_cheapest() -> None:
    found = proposals().search(long_steps, 4)

    assert all(predicted.most_gain >= predicted.gain for _, predicted in found)
