"""The zoo of slow trainings: the planted cause comes first, with its line; clean trainings have no slow line."""

import ast
import re
from pathlib import Path

import pytest
import torch

from autotune.core.results import Outcome
from autotune.machine.host import host_memory
from autotune.profile.judge import expensive_lines
from autotune.profile.measuring.sizes import Product, faster_larger
from autotune.profile.records import ProfileRequest
from tests.worlds import config

pytestmark = pytest.mark.slow
TRAININGS = Path(__file__).parent / "trainings"
PLANTED = {
    "carries_the_graph": "graph",
    "casts_back_and_forth": "casting",
    "clones_inputs": "clone",
    "collates_slowly": "loading",
    "collects_garbage": "collector",
    "copies_the_model": "copying",
    "decodes_slowly": "loading",
    "evaluates_every_step": "evaluating",
    "fills_with_zeros": "zeroing",
    "float64_crept_in": "float64",
    "is_deterministic": "switch",
    "joins_the_history": "growing",
    "joins_by_copying": "joining",
    "keeps_features": "growth",
    "logs_every_step": "python",
    "looks_for_anomalies": "switch",
    "multiplies_odd_sizes": "sizes",
    "loops_over_samples": "loop",
    "prints_tensors": "printing",
    "python_metric": "python",
    "reads_predictions": "host read",
    "rereads_the_file": "rereading",
    "saves_every_step": "saving",
    "schedules_in_python": "python",
    "sleeps_every_step": "waiting",
    "slow_samples": "tail",
    "sorts_the_history": "python",
    "starts_a_process": "waiting",
    "takes_rows_one_by_one": "one by one",
    "tensor_in_every_step": "host tensor",
    "trains_two_networks": "unused",
    "untrained_parameters": "untrained",
    "waits_in_order": "order",
    "watches_activations": "hook",
    "watches_gradients": "hook",
}
ODD = Product(256, 7, 4097, torch.float32)  # of multiplies_odd_sizes, faster as 8 x 4,104 on processors with AVX2
CLEAN = sorted(path.stem for path in TRAININGS.glob("clean_*.py"))


@pytest.fixture
def profiled(forking_launcher, tmp_path_factory, request):
    attempt = getattr(request.node, "execution_count", 1)  # counts from 1 where failures run again

    def profile(name, seconds=0.2):
        written = re.search(r"^baseline = (\{.*\})", (TRAININGS / f"{name}.py").read_text(), re.MULTILINE)
        baseline = ast.literal_eval(written[1]) if written else {}
        asked = ProfileRequest(
            target=str(TRAININGS / f"{name}.py"),
            # One thread: several wait for each other where other tests have the cores.
            config=config(**{"batch_size": 64, "num_threads": 1, **baseline}),
            device="cpu",
            # Beside tests that have the cores, steps differ more and take longer: what failed is looked at for longer.
            seconds=attempt * seconds,
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
    if PLANTED[name] == "sizes" and faster_larger(ODD, "cpu", seconds=0.01)[0] is None:
        pytest.skip("this processor multiplies sizes that are no multiples of 8 as fast")

    first = expensive_lines(profiled(name))[0]

    assert first.kind == PLANTED[name]
    assert f"{name}.py:{planted_line(name)} in " in first.place
    assert first.code.endswith("# planted")


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_training_has_no_slow_line(name, profiled):
    assert expensive_lines(profiled(name, seconds=1.0)) == []


def test_memory_that_grows_is_told_with_the_step_at_which_it_runs_out(profiled):
    (grows,) = (one for one in expensive_lines(profiled("keeps_features")) if one.kind == "growth")

    assert grows.steps_left == pytest.approx(host_memory().available_bytes / grows.bytes, rel=0.5)


def test_every_planted_training_is_tested():
    assert {*PLANTED, *CLEAN, "usual"} == {path.stem for path in TRAININGS.glob("*.py")}
