"""The zoo of slow trainings: the planted cause comes first, with its line; clean trainings have no finding."""

from pathlib import Path

import pytest

from autotune.core.requests import ProfileRequest
from autotune.core.results import Outcome
from autotune.profile.judge import findings
from tests.worlds import config

pytestmark = pytest.mark.slow
TRAININGS = Path(__file__).parent / "trainings"
PLANTED = {
    "reads_predictions": "host read",
    "tensor_in_every_step": "host tensor",
    "collects_garbage": "collector",
    "saves_every_step": "saving",
    "fills_with_zeros": "zeroing",
    "untrained_parameters": "untrained",
    "keeps_features": "growth",
    "float64_crept_in": "float64",
    "python_metric": "python",
    "slow_samples": "tail",
}
BATCHES = {"fills_with_zeros": 8, "clean_cnn": 64, "clean_transformer": 16}
TRIES = 3  # other tests share the cores: steps with and without a cause agree on nothing then, and it says so
CLEAN = sorted(path.stem for path in TRAININGS.glob("clean_*.py"))


@pytest.fixture
def profiled(forking_launcher, tmp_path_factory):
    def profile(name, seconds=1.0):
        asked = ProfileRequest(
            target=str(TRAININGS / f"{name}.py"),
            config=config(batch_size=BATCHES.get(name, 256)),
            device="cpu",
            seconds=seconds,
        )
        result = forking_launcher.run(asked, tmp_path_factory.mktemp(name))
        assert result.outcome is Outcome.OK, result.failure
        return result

    return profile


def planted_line(name):
    lines = (TRAININGS / f"{name}.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith("# planted"))


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_cause_comes_first_with_its_line(name, profiled):
    tries = (findings(profiled(name)) for _ in range(TRIES))
    found = next((one for one in tries if one and one[0].kind == PLANTED[name]), [])

    assert found, "another finding was first, or none, in each try"
    first = found[0]
    assert f"{name}.py:{planted_line(name)} in " in first.place
    assert first.code.endswith("# planted")


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_training_has_no_finding(name, profiled):
    assert any(findings(profiled(name, seconds=3.0)) == [] for _ in range(TRIES))


def test_every_planted_training_is_tested():
    assert {*PLANTED, *CLEAN} == {path.stem for path in TRAININGS.glob("*.py")}
