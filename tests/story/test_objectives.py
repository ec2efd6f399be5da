"""What each objective looks for, finds and says, on a machine whose truth is known."""

import pytest
from msgspec.structs import replace

from autotune.core.codes import Code
from autotune.core.interference_readings import GpuUse
from autotune.core.records import Config
from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome
from autotune.errors import StudyError, UsageError
from autotune.launch.base import RESULT
from autotune.launch.files import store
from autotune.report import phrases
from autotune.report.page import render
from autotune.study.recommendation import load_result
from autotune.study.view import load_view
from autotune.testing import FakeLauncher, Machine
from tests.worlds import GIB, Listener, declared, environment, facts, searched

ROOM = dict.fromkeys((None, "bfloat16", "float16"), 0.01 * GIB)  # of memory for a sample
QUIET = Machine(  # computing decides, and every batch fits
    optimizer_seconds=0.0, sample_loading_seconds=1e-6, noise_between_probes=0.001, per_sample_bytes=ROOM
)
DTYPES = {"tune": ("amp_dtype",), "time_budget_seconds": 1e6}
WATTS = {None: 100.0, "bfloat16": 300.0, "float16": 300.0}


class Metered(FakeLauncher):
    """A GPU whose driver counts energy; autocast is up to three times as fast and takes three times the power."""

    def run(self, request, folder):
        result = super().run(request, folder)
        if not isinstance(request, ProbeRequest) or result.outcome is not Outcome.OK:
            return result
        assert sum(result.measurement.step_seconds) > 4.5, "the counter moves every 0.1 s"
        joules = sum(result.measurement.step_seconds) * WATTS[request.config["amp_dtype"]]
        metered = replace(result, gpu=GpuUse(readings=9, energy_joules=joules))
        store(folder, RESULT, metered)
        return metered


def _rates(launcher, answer):
    """True samples/s of the recommendation with every micro-batch at the same global batch."""
    sizes = [2**exponent for exponent in range(3, 10)]
    configs = [{**answer.params, "batch_size": size, "gradient_accumulation_steps": 512 // size} for size in sizes]
    return {size: launcher.throughput(Config(values=values)) for size, values in zip(sizes, configs, strict=True)}


def test_memory_finds_the_smallest_batch_that_is_fast_enough(tmp_path):
    """Eight probes in 70 configurations: the search for the fastest does not come near the batch that is wanted."""
    launcher = FakeLauncher(machine=QUIET, facts=declared(batch_size=512))
    few = {"global_batch": 512, "sampler": "structured", "probes": 8, "time_budget_seconds": 1e6}

    answer = searched(tmp_path, launcher, objective="memory", within=0.3, **few)

    rates = _rates(launcher, answer)
    assert answer.params["batch_size"] == min(size for size in rates if rates[size] >= 0.7 * max(rates.values())) < 256
    assert "less memory than your baseline" in phrases.headline(answer)
    assert '<span class="factor">' in render(load_view(tmp_path))
    assert Code.LEAST_MEMORY in {reason.code for reason in answer.reasons}


def test_energy_takes_the_dtype_that_is_slower_and_needs_less(tmp_path):
    fast = FakeLauncher(machine=QUIET, facts=declared())
    frugal = Metered(machine=QUIET, facts=declared())

    speed = searched(tmp_path / "speed", fast, **DTYPES)
    energy = searched(tmp_path / "energy", frugal, objective="energy", **DTYPES)

    assert (speed.params["amp_dtype"], energy.params["amp_dtype"]) == ("bfloat16", None)
    assert energy.samples_per_second < speed.samples_per_second
    assert energy.achieved.unit == "samples/J"
    assert energy.achieved.score == pytest.approx(energy.samples_per_second / 100, rel=1e-3)
    assert [round(reason.numbers["watts"]) for reason in energy.reasons if reason.code is Code.ENERGY] == [100]
    assert any("less energy-efficient" in lost.reason.text for lost in energy.runners_up)


def test_energy_won_over_the_baseline_is_the_headline(tmp_path):
    launcher = Metered(machine=QUIET, facts=declared(amp_dtype="float16"))

    answer = searched(tmp_path, launcher, objective="energy", **DTYPES)

    assert answer.achieved.gain_low > 1
    assert phrases.headline(answer).startswith(
        f"{answer.achieved.gain:.2f}× as many samples per joule as your baseline"
    )


def test_energy_without_a_gpu_is_refused_before_any_probe(tmp_path):
    launcher, listener = FakeLauncher(environment=environment(device="cpu", device_name="Xeon")), Listener()

    with pytest.raises(UsageError, match=r"needs a GPU that counts its energy; the device is cpu \(Xeon\)") as caught:
        searched(tmp_path / "s", launcher, listener, objective="energy")

    assert caught.value.exit_code == 2
    assert listener.trials == []
    assert not (tmp_path / "s").exists()


def test_energy_that_no_probe_measures_ends_the_search_after_the_first_one_also_when_resumed(tmp_path):
    listener = Listener()

    for _ in range(2):
        with pytest.raises(UsageError, match=r"--objective energy is not possible here\. .*--objective throughput"):
            searched(tmp_path, FakeLauncher(facts=declared()), listener, objective="energy")

    assert len(listener.trials) == 1


def test_cost_is_told_in_the_money_of_its_price(tmp_path):
    launcher = FakeLauncher(machine=QUIET, facts=declared())

    answer = searched(tmp_path, launcher, objective="cost", price=3.6, **DTYPES)

    assert answer.params["amp_dtype"] == "bfloat16"  # what is fastest, too

    assert answer.achieved.score == pytest.approx(1000 * answer.samples_per_second, rel=1e-3)
    costs = 1e6 / answer.achieved.score
    assert answer.reasons[0].numbers["million_samples"] == pytest.approx(costs, rel=1e-3)
    saved = 3600 * (1 - 1 / answer.speedup)
    (found,) = [reason for reason in answer.reasons if reason.code is Code.COST_SAVED]
    assert found.numbers["saved"] == pytest.approx(saved, rel=1e-2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"objective": "cost"}, r"--objective cost needs the price of an hour .*--price 2\.49"),
        ({"price": 2.5}, r"--price 2\.5 has no effect with --objective throughput.*--objective cost"),
        ({"within": 0.1, "objective": "cost", "price": 1.0}, r"--within 10% has no effect with --objective cost"),
        ({"exact": True, "global_batch": "free"}, r"--exact holds the global batch, --global-batch free searches it"),
    ],
)
def test_options_that_contradict_one_another_are_refused_before_any_probe(tmp_path, options, said):
    listener = Listener()

    with pytest.raises(UsageError, match=said) as caught:
        searched(tmp_path / "s", FakeLauncher(facts=declared()), listener, **options)

    assert caught.value.exit_code == 2
    assert listener.trials == []


def test_a_study_is_not_resumed_with_another_objective(tmp_path):
    searched(tmp_path, FakeLauncher(facts=declared()), **DTYPES)

    with pytest.raises(StudyError, match=r"objective was throughput, is memory.*--fresh"):
        searched(tmp_path, FakeLauncher(facts=declared()), objective="memory", **DTYPES)


def test_what_is_sought_is_said_at_the_start_and_kept_with_the_answer(tmp_path):
    listener = Listener()

    searched(tmp_path, FakeLauncher(facts=declared()), listener, objective="memory", exact=True, probes=2)

    assert "for the least memory that is nearly as fast as the fastest · exact" in listener.lines[3]
    assert load_result(tmp_path).goal.objective == "memory"


@pytest.mark.parametrize("has_batch_norm", [False, True])
def test_exact_moves_only_what_computes_the_same(tmp_path, has_batch_norm):
    launcher, listener = FakeLauncher(facts=facts(has_batch_norm=has_batch_norm)), Listener()

    searched(
        tmp_path,
        launcher,
        listener,
        exact=True,
        probes=12,
        sampler="random",
        time_budget_seconds=1e6,
        baseline={"batch_size": 64},
    )

    configs = [trial.config for trial in listener.trials]
    assert {config["amp_dtype"] for config in configs} == {None}
    assert {config.global_batch_size() for config in configs} == {64}
    assert ({config.batch_size for config in configs} == {64}) is has_batch_norm
    assert len({config["num_workers"] for config in configs}) > 1
    assert Code.EXACT in {reason.code for reason in listener.answer.reasons}
