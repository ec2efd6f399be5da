"""Time to quality: throughput less what a large batch wastes, by a noise scale that is measured once."""

import optuna
import pytest
from msgspec.structs import replace

from autotune.answer.global_batch import global_batch_change
from autotune.core import codec
from autotune.core.codes import Code
from autotune.core.records import Goal
from autotune.core.results import Outcome
from autotune.errors import EnvironmentUnfit, UsageError
from autotune.gradient_noise.estimate import batch_range
from autotune.gradient_noise.records import NoiseScale, NoiseScaleRequest, NoiseScaleResult
from autotune.gradient_noise.stage import (
    describe_advice,
    describe_noise_scale,
    measure_gradient_noise,
    with_batch_advice,
)
from autotune.launch.base import RESULT
from autotune.objectives import objective_of
from autotune.objectives.verdict import judge
from autotune.sampler.encoding import Encoding
from autotune.sampler.grid import Hardware
from autotune.sampler.guard import Guard
from autotune.sampler.optuna import make_sampler
from autotune.sampler.structured import Knowledge
from autotune.study import disk
from autotune.study.history import History
from autotune.study.recommendation import BatchAdvice, Recommendation
from autotune.study.summary import ConfigSummary
from autotune.study.view import load_view
from autotune.testing import FakeLauncher, Machine
from autotune.testing.simulated_results import sampled_gradients
from tests.worlds import (
    Listener,
    config,
    context,
    declared,
    facts,
    good,
    measured,
    searched,
    space,
    study_request,
    trial,
)

GOAL = Goal(objective="time-to-quality")
REQUEST = study_request(goal=GOAL)
WIDE = {"tune": ("batch_size",), "probes": 10, "time_budget_seconds": 1e5}
WANTED = {"objective": "time-to-quality", "global_batch": "free", **WIDE}


def noise(**changes):
    return replace(NoiseScale(phi=26.0, low=18.0, high=39.0, steps=30, has_fallen=True, samples=2048), **changes)


def world(phi, **options):
    return FakeLauncher(machine=Machine(noise_scale=phi), facts=declared(batch_size=32, num_workers=8), **options)


def gradients_of(folder):
    return [request.config.batch_size for request, _ in disk.attempts(folder, NoiseScaleRequest.kind())]


def test_a_batch_as_large_as_the_noise_scale_is_worth_half_its_throughput():
    assert judge(measured(100.0, samples=64), REQUEST, 64.0).value == pytest.approx(50.0)
    assert judge(measured(100.0, samples=64), REQUEST).value == pytest.approx(100.0)  # nothing is known yet


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """A search where the best global batch is far below that of the highest throughput."""
    folder, launcher, listener = tmp_path_factory.mktemp("story") / "study", world(500.0), Listener()
    return folder, launcher, listener, searched(folder, launcher, listener, **WANTED)


def test_the_batch_follows_from_the_noise_scale_and_not_from_the_throughput_alone(story):
    _, launcher, _, answer = story
    rates = {2**power: launcher.throughput(config(**{**answer.params, "batch_size": 2**power})) for power in range(12)}
    useful = {batch: (rate or 0) / (1 + batch / 500) for batch, rate in rates.items()}

    assert useful[answer.global_batch_size] >= 0.97 * max(useful.values())
    assert answer.global_batch_size < max(batch for batch, rate in rates.items() if rate)
    assert answer.achieved.unit == "useful samples/s"


def test_the_answer_tells_the_noise_scale_with_its_interval_and_the_learning_rate_as_a_start(story):
    folder, _, listener, answer = story

    found = answer.batch_advice
    assert found.noise.low < 500.0 < found.noise.high
    assert found.half_batch == pytest.approx(20, rel=0.1)  # 6 + 2 ms, and 0.4 ms a sample
    assert (found.low, found.high) == batch_range(found.noise, found.half_batch)
    assert answer.reasons[0] == describe_noise_scale(found.noise)
    assert answer.reasons[3].code is Code.BEST_GLOBAL_BATCH
    assert answer.global_batch_change.code is Code.GLOBAL_BATCH_CHANGED_NOISE_SCALE
    assert any(note.startswith("Measuring the gradient noise scale") for note in listener.notes)
    assert codec.read(folder / disk.BEST, Recommendation) == answer


def test_whoever_reads_the_study_judges_as_the_search_did(story):
    folder, _, _, answer = story

    view = load_view(folder)
    first = view.trials[0]
    rate = first.result.measurement.samples_per_second
    assert view.noise_scale == answer.batch_advice.noise.phi
    assert view.verdict(first).value == pytest.approx(rate / (1 + 32 / view.noise_scale))


def test_the_sampler_knows_what_a_large_batch_wastes_before_anything_was_probed():
    made = space(GOAL)
    encoding, guard = Encoding(made), Guard(made)

    def first(phi):
        value = objective_of(GOAL).value_per_sample(GOAL, phi)
        sampler = make_sampler("structured", 0, encoding, guard, Hardware(), Knowledge(value_per_sample=value))
        study = optuna.create_study(direction="maximize", sampler=sampler)
        params = study.ask(encoding.distributions).params
        return encoding.config(params).global_batch_size()

    assert first(1.0) < 64 < first(None)


def test_a_search_that_goes_on_does_not_measure_again(story):
    folder, launcher, _, answer = story

    again = searched(folder, launcher, mode="resume", **{**WANTED, "probes": 1})

    assert gradients_of(folder) == [32]
    assert again.goal == answer.goal


def measure(folder, request, launcher, listener=None, budget=600.0):
    """The history of a study after its noise scale was measured."""
    search = context(folder, launcher, listener, request=request, time_budget_seconds=budget)
    measure_gradient_noise(search)
    return search.history


def test_other_objectives_measure_none(tmp_path):
    history = measure(tmp_path, study_request(), world(50.0))

    assert gradients_of(tmp_path) == []
    assert history.noise_scale is None


def test_a_sample_that_does_not_fit_is_taken_with_half_the_batch(tmp_path):
    launcher = world(
        50.0, faults={NoiseScaleRequest: lambda r: Outcome.OOM_DEVICE if r.config.batch_size > 16 else None}
    )

    history = measure(tmp_path, REQUEST, launcher)

    assert gradients_of(tmp_path) == [64, 32, 16]
    assert history.noise_scale == pytest.approx(50, rel=0.2)


def test_a_crash_is_tried_once_more_and_then_the_search_goes_by_throughput(tmp_path, story):
    listener, launcher = Listener(), world(50.0, faults={NoiseScaleRequest: lambda request: Outcome.CRASHED})

    history = measure(tmp_path, REQUEST, launcher, listener)
    answer = with_batch_advice(story[-1], history)

    assert gradients_of(tmp_path) == [64, 64]
    assert history.noise_scale is None
    assert "all batch sizes count as equally efficient" in listener.notes[-1]
    assert answer.warnings[0].code is Code.NOISE_SCALE_UNKNOWN
    assert "could not be measured: a scripted crashed." in answer.warnings[0].text


def test_an_unfit_machine_ends_it(tmp_path):
    with pytest.raises(EnvironmentUnfit):
        measure(tmp_path, REQUEST, world(50.0, faults={NoiseScaleRequest: lambda r: Outcome.ENVIRONMENT}))


def test_accumulation_is_left_out_so_that_a_step_is_one_micro_batch(tmp_path):
    accumulating = replace(REQUEST, baseline=config(batch_size=16, gradient_accumulation_steps=4))

    measure(tmp_path, accumulating, world(50.0))

    asked, _ = disk.attempts(tmp_path, NoiseScaleRequest.kind())[0]
    assert asked.config["gradient_accumulation_steps"] == 1
    assert (asked.config.batch_size, asked.max_seconds) == (16, 60.0)


@pytest.mark.parametrize(("budget", "seconds"), [(10.0, 5.0), (300.0, 30.0), (1e6, 60.0)])
def test_it_takes_a_tenth_of_the_time_at_most_unless_that_is_nothing(tmp_path, budget, seconds):
    measure(tmp_path, REQUEST, world(50.0), budget=budget)

    assert disk.attempts(tmp_path, NoiseScaleRequest.kind())[0][0].max_seconds == seconds


def test_an_interrupt_while_gradients_are_taken_says_how_to_go_on(tmp_path):
    class Interrupted(FakeLauncher):
        def run(self, request, folder):
            if isinstance(request, NoiseScaleRequest):
                raise KeyboardInterrupt
            return super().run(request, folder)

    listener = Listener()

    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path, Interrupted(facts=declared()), listener, **WANTED)

    assert "--resume" in listener.stopped[1]


@pytest.mark.parametrize("held", ["keep", 256])
def test_a_held_global_batch_contradicts_it(tmp_path, held):
    with pytest.raises(UsageError, match=r"held at (32|256)\. .* Add --global-batch free"):
        searched(tmp_path / "study", world(50.0), **{**WANTED, "global_batch": held})

    assert not (tmp_path / "study").exists()


def test_a_synthetic_batch_has_no_noise_to_measure(tmp_path):
    with pytest.raises(UsageError, match=r"batches are synthetic\. .* Write dataset\(\)"):
        searched(tmp_path / "study", FakeLauncher(facts=facts(data="batch")), **WANTED)

    assert not (tmp_path / "study").exists()


def test_the_noise_scale_is_told_with_the_step_its_interval_and_what_it_means():
    advice = BatchAdvice(noise=noise(), half_batch=32.0, low=24.0, high=61.2)

    found = describe_advice(advice, 256)

    assert [one.text for one in found] == [
        "gradient noise scale after 30 steps: 26 samples (18 to 39); batches up to about 26 waste less than 50% of the "
        "samples",
        "estimated efficiency of a global batch of 256: 9% (7% to 13%)",
        "the noise scale normally grows 3 to 10 times during training, so late training tolerates larger batches",
        "estimate: a global batch of 24 to 61 (middle 38) reaches a given training loss soonest; how well the model "
        "generalises is not measured",
    ]
    assert describe_advice(replace(advice, low=None, high=None), 256) == found[:3]


def test_a_noise_scale_that_is_not_resolved_is_told_as_a_bound():
    open_ended = noise(phi=None, low=1234.0, high=None)

    found = describe_advice(BatchAdvice(noise=open_ended, half_batch=None, low=None, high=None), 256)

    assert [one.text for one in found] == [
        "gradient noise scale after 30 steps: at least 1,200 samples; no evidence that the largest batch wastes samples"
    ]


def test_a_loss_that_had_not_fallen_is_a_warning(tmp_path, story):
    measure(tmp_path, REQUEST, world(50.0))
    place = tmp_path / NoiseScaleRequest.FOLDER / "0000" / RESULT
    result = codec.read(place, NoiseScaleResult)
    codec.write(place, replace(result, sample=replace(result.sample, has_fallen=False)))

    answer = with_batch_advice(story[-1], History.read(tmp_path, REQUEST))

    assert (answer.warnings[0].code, answer.warnings[0].numbers["steps"]) == (Code.NOISE_SCALE_EARLY, 30)


def test_the_learning_rate_is_advised_by_the_noise_scale_where_it_is_known():
    winner = ConfigSummary(config=config(batch_size=128), trials=(trial(measured()),), verdicts=(good(1.0),))

    by_noise, by_root = (global_batch_change(winner, REQUEST, phi).numbers for phi in (64.0, None))

    assert (by_noise["sgd_factor"], by_noise["adam_factor"]) == pytest.approx((1.33, 1.15), abs=0.01)
    assert by_root["learning_rate_factor"] == pytest.approx(1.41, abs=0.01)


def test_the_fake_gradients_have_the_noise_that_they_are_told_to():
    request = NoiseScaleRequest(target="fake", config=config(batch_size=8), device="cpu")

    sample = sampled_gradients(request, 40.0)

    spread = sum(sample.squared_norms) / 64 - sum(sample.alignments) / 64
    assert spread * 8 * 64 / 63 == pytest.approx(40.0, rel=0.1)
