"""The structured sampler in a whole search: few probes, its reasons kept beside them, and nothing lost by a kill."""

import pytest

from autotune.sampler.space import build
from autotune.study import disk
from autotune.testing import FakeLauncher
from tests.worlds import Interrupted, Listener, declared, searched


def _launcher(**options):
    return FakeLauncher(facts=declared(), **options)


def _best(launcher, listener):
    rates = [launcher.throughput(trial.config) or 0.0 for trial in listener.trials]
    return max(rates)


@pytest.mark.parametrize("global_batch", [None, "free"])
def test_it_finds_the_best_in_a_dozen_probes_and_says_that_nothing_is_left(tmp_path, global_batch):
    launcher, listener = _launcher(), Listener()

    searched(tmp_path / "study", launcher, listener, sampler="structured", global_batch=global_batch)

    every = disk.read_request(tmp_path / "study")
    probed = [trial for trial in listener.trials if trial.purpose == "search"]
    assert len(probed) <= 12
    assert sum(trial.result.outcome.out_of_memory for trial in probed) <= 1
    assert _best(launcher, listener) >= 0.98 * _fastest(launcher, every)
    assert any(note.startswith("Untried configurations: at most ") for note in listener.notes)
    assert any("was below 2% each" in note for note in listener.notes)


def _fastest(launcher, request):
    """Of all configurations of the study, by brute force over its domains."""
    space = build(request.facts, request.environment, request.goal, request.baseline)
    return launcher.throughput(launcher.best(space.configs))


def test_what_it_expected_is_kept_beside_each_probe(tmp_path):
    listener = Listener()

    searched(tmp_path / "study", _launcher(), listener, sampler="structured", probes=5)

    probed = [trial for trial in listener.trials if trial.purpose == "search"]
    said = [disk.read_prediction(tmp_path / "study", trial.number) for trial in probed]
    last, seen = said[-1], probed[-1].result.measurement
    assert all(prediction is not None for prediction in said)
    assert seen.samples_per_second == pytest.approx(last.samples_per_second, rel=0.2)
    assert disk.read_prediction(tmp_path / "study", 0) is None  # nobody expected anything of the baseline


def test_after_an_interrupt_it_goes_on_from_what_the_probes_have_shown(tmp_path):
    listener = Listener()
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path / "study", Interrupted(4, facts=declared()), sampler="structured")

    searched(tmp_path / "study", _launcher(), listener, sampler="structured", probes=3)

    first = next(trial for trial in listener.trials if trial.purpose == "search")
    said = disk.read_prediction(tmp_path / "study", first.number)
    assert said.gain is not None  # it knows an incumbent
    assert said.low > 0.5 * said.samples_per_second  # and has learned the machine
