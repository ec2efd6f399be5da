"""Recorded surfaces: measured once and whole, small on disk, and replayed as the launcher that had measured them."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from autotune.core import codec
from autotune.core.requests import InspectRequest, ProbeRequest
from autotune.core.results import Inspection, IsolatedTiming, Outcome, ProbeResult
from autotune.errors import EnvironmentUnfit
from autotune.gradient_noise.records import NoiseScaleRequest
from autotune.launch.base import LOG, REQUEST, RESULT
from autotune.memory.records import ShapeRun, ShapeRunRequest
from autotune.objectives.verdict import judge
from autotune.precision.records import PrecisionCheckRequest
from autotune.testing import FakeLauncher
from benchmarks import peers
from benchmarks.surfaces import samplers
from benchmarks.surfaces.recording import record
from benchmarks.surfaces.replay import ReplayLauncher
from benchmarks.surfaces.surface import condensed, read
from benchmarks.surfaces.tasks import TASKS, Task, chosen
from tests.worlds import config, declared, measured

SURFACES = Path(__file__).parents[2] / "studies" / "surfaces"
RECORDED = sorted(SURFACES.glob("*.json"))
TASK = Task(
    name="fake",
    what="a machine in closed form",
    target="model.py",
    global_batch=64,
    memory_limit="2.7GiB",  # at batch 64 full precision runs out of it, and bfloat16 leaves too little of it free
    usual=8,
    grid={
        "batch_size": (8, 16, 32, 64),
        "amp_dtype": (None, "bfloat16"),
        "num_workers": (0, 4),
        "channels_last": (False, True),
    },
)


@pytest.fixture(scope="module")
def truth():
    return FakeLauncher(facts=declared())


@pytest.fixture(scope="module")
def surface(truth):
    return record(TASK, truth, "as recorded")


@pytest.fixture
def launcher(surface):
    return ReplayLauncher(surface)


def request_for(config, number=0):
    return ProbeRequest(target="model.py", config=config, device="cpu", number=number)


def cell(surface, outcome):
    return next(cell for cell in surface.cells if cell.result.outcome is outcome)


def test_a_task_without_a_memory_limit_has_no_option_for_it():
    command = dataclasses.replace(TASK, memory_limit=None).command(Path("study"), 60.0)

    assert "--memory-limit" not in command
    assert None not in command


def test_a_surface_holds_every_configuration_of_the_grid_once(surface):
    configs = [cell.config for cell in surface.cells]

    assert len(configs) == len(set(configs)) == 4 * 2 * 2 * 2
    assert {config.global_batch_size() for config in configs} == {64}
    assert surface.request.baseline in configs


def test_a_surface_knows_what_fits_and_what_is_best(surface, truth):
    expected = truth.best(cell.config for cell in surface.cells if cell.config.batch_size < 64)

    best, rate = surface.best

    assert rate == pytest.approx(truth.throughput(best), rel=0.02)
    assert truth.throughput(best) == pytest.approx(truth.throughput(expected), rel=0.02)
    assert surface.out_of_memory == 8  # each dtype, layout and number of workers
    assert {c.config for c in surface.cells if surface.rates[c.config] is None} == {
        c.config for c in surface.cells if c.config.batch_size == 64
    }


def test_a_probe_that_crashed_once_is_measured_again():
    attempts = []

    def once(request):
        attempts.append(request.config)
        return Outcome.CRASHED if attempts.count(request.config) == 1 else None

    surface = record(TASK, FakeLauncher(facts=declared(), faults={ProbeRequest: once}), "as recorded")

    assert len(attempts) == 2 * len(surface.cells)
    assert {cell.result.outcome for cell in surface.cells} == {Outcome.OK, Outcome.OOM_DEVICE}


def test_a_baseline_that_does_not_run_ends_the_recording():
    broken = FakeLauncher(facts=declared(), faults={ProbeRequest: lambda request: Outcome.USER_ERROR})

    with pytest.raises(RuntimeError, match=r"^model\.py: a scripted user-error"):
        record(TASK, broken, "as recorded")


def test_a_configuration_that_does_not_run_is_a_cell_like_any_other():
    def fate(request):
        return Outcome.USER_ERROR if request.config["batch_size"] == 32 else None

    surface = record(TASK, FakeLauncher(facts=declared(), faults={ProbeRequest: fate}), "as recorded")

    assert len(surface.cells) == 32
    assert sum(cell.result.outcome is Outcome.USER_ERROR for cell in surface.cells) == 8


def test_condensing_keeps_every_rate_and_peak(truth, tmp_path):
    long = truth.run(request_for(config(batch_size=8)), tmp_path)
    before = replace(long.measurement, compute_only=IsolatedTiming(seconds=(9.0, 9.0, 2.0, 1.0), samples=8))

    after = condensed(replace(long, measurement=before)).measurement

    assert len(after.step_seconds) == 8 < len(before.step_seconds)
    assert sum(after.samples) == sum(before.samples)
    assert after.samples_per_second == pytest.approx(before.samples_per_second, rel=1e-4)
    assert after.data_wait_share == pytest.approx(before.data_wait_share, rel=1e-3, abs=1e-4)
    assert after.compute_only.samples_per_second == pytest.approx(before.compute_only.samples_per_second)
    assert after.loader_only.samples_per_second == pytest.approx(before.loader_only.samples_per_second)
    assert after.memory == before.memory
    assert len(after.losses) == 8


def test_a_result_that_is_short_already_is_kept_as_it_is():
    short = measured(rate=128.0)

    assert condensed(short) == short


def test_a_surface_survives_its_file(surface, tmp_path):
    codec.write(tmp_path / "fake.json", surface)

    assert read(tmp_path / "fake.json") == surface


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.OOM_DEVICE])
def test_a_replayed_probe_is_the_recorded_one_with_its_files(surface, launcher, tmp_path, outcome):
    recorded = cell(surface, outcome)
    request = request_for(recorded.config, number=3)

    first, second = launcher.run(request, tmp_path), launcher.run(request, tmp_path)

    assert first == second == recorded.result
    assert first == codec.read(tmp_path / RESULT, ProbeResult)
    assert request == codec.read(tmp_path / REQUEST, ProbeRequest)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([LOG, REQUEST, RESULT])
    assert launcher.clock() == pytest.approx(2 * recorded.result.elapsed_seconds)


def test_what_was_not_recorded_cannot_be_run(launcher, tmp_path):
    result = launcher.run(request_for(config(batch_size=48)), tmp_path)

    assert result.outcome is Outcome.INVALID_CONFIG
    assert result.failure.message == "this configuration was not recorded"


def test_an_inspection_tells_the_recorded_machine_and_target(surface, launcher, tmp_path):
    inspection = launcher.run(InspectRequest(target="model.py"), tmp_path)

    assert inspection.environment == surface.request.environment
    assert inspection.facts == surface.request.facts
    assert inspection == codec.read(tmp_path / RESULT, Inspection)
    assert launcher.run(InspectRequest(), tmp_path).facts is None


def test_a_shape_run_is_the_recorded_one(surface, launcher, tmp_path):
    request = ShapeRunRequest(target="model.py", config=config(), arms=({},), batches=(8,), device="cpu")

    found = launcher.run(request, tmp_path)

    assert found == surface.shape_run == codec.read(tmp_path / RESULT, ShapeRun)
    assert found.peak_bytes(config(batch_size=64).values) > found.peak_bytes(config(batch_size=8).values) > 0
    assert launcher.clock() == pytest.approx(found.elapsed_seconds)


def test_what_a_surface_knows_nothing_of_fails_and_comes_back(surface, tmp_path):
    launcher, one = ReplayLauncher(replace(surface, shape_run=None)), config(batch_size=8)

    answers = [
        launcher.run(PrecisionCheckRequest(target="model.py", reference=one, candidate=one, device="cpu"), tmp_path),
        launcher.run(NoiseScaleRequest(target="model.py", config=one, device="cpu"), tmp_path),
        launcher.run(ShapeRunRequest(target="model.py", config=one, arms=({},), batches=(8,), device="cpu"), tmp_path),
    ]

    assert [answer.outcome for answer in answers] == [Outcome.CRASHED] * 3
    assert all(answer.failure.message and answer.started_at for answer in answers)


@pytest.mark.parametrize("name", [REQUEST, RESULT])
def test_a_folder_that_cannot_be_written_is_an_unfit_environment(surface, launcher, tmp_path, name):
    (tmp_path / f"{name}.partial").mkdir()  # stands in the way of an atomic write, also for root

    with pytest.raises(EnvironmentUnfit, match=r"cannot be written: .* free there\)\. .*\. Free some space"):
        launcher.run(request_for(surface.cells[0].config), tmp_path)


def test_probes_side_by_side_keep_their_folders_and_their_time_apart(surface, launcher, tmp_path):
    cells = surface.cells[:4]
    folders = [tmp_path / str(number) for number in range(len(cells))]
    for folder in folders:
        folder.mkdir()

    with ThreadPoolExecutor(len(cells)) as pool:
        results = list(pool.map(launcher.run, [request_for(cell.config) for cell in cells], folders))

    assert results == [cell.result for cell in cells]
    assert results == [codec.read(folder / RESULT, ProbeResult) for folder in folders]
    assert launcher.clock() == pytest.approx(sum(cell.result.elapsed_seconds for cell in cells))


@pytest.mark.parametrize("name", samplers.NAMES)
def test_every_sampler_finds_the_best_of_a_surface_in_the_end(surface, name):
    run = samplers.replayed(name, surface, seed=1)

    assert run.hit is not None
    assert 1 < run.hit <= len(surface.cells) + 1
    assert run.out_of_memory < surface.out_of_memory  # the guard spares the larger ones


@pytest.mark.parametrize("name", ["random", "grid"])
def test_where_nothing_is_good_enough_a_search_ends_when_nothing_is_left(surface, monkeypatch, name):
    monkeypatch.setattr(samplers, "WITHIN", 2.0)

    run = samplers.replayed(name, surface, seed=3)

    assert run.hit is None
    assert len(run.probed) == len(set(run.probed))
    assert {c.config for c in surface.cells if c.config.batch_size < 64} <= set(run.probed)
    assert 2 <= run.out_of_memory <= surface.out_of_memory


def test_a_search_over_a_surface_is_repeatable(surface):
    assert samplers.replayed("tpe", surface, seed=2) == samplers.replayed("tpe", surface, seed=2)


@pytest.mark.slow
def test_the_real_tuner_comes_to_the_best_of_a_surface_and_stops(surface):
    answer = samplers.answered(TASK, surface, seed=0)

    assert answer.share >= 0.95
    assert answer.searched < len(surface.cells)
    assert answer.confirmed > 0


@pytest.mark.parametrize(("name", "most"), [("jpeg_cnn", 8), ("resnet", 4)])
def test_the_best_of_what_was_measured_is_found_in_as_few_probes_as_somebody_who_knows_cpus_would_need(name, most):
    """One torch thread beside a worker that decodes; all threads where nothing is loaded."""
    measured_once = read(SURFACES / f"{name}.json")

    runs = [samplers.replayed("structured", measured_once, seed) for seed in range(3)]

    assert max(len(run.probed) for run in runs) <= most


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_committed_surface_is_small_whole_and_measured(path):
    surface = read(path)

    assert path.stat().st_size < 100_000
    assert chosen(surface.task)[0].target == surface.request.target
    assert len(surface.cells) == len({cell.config for cell in surface.cells}) >= 15
    assert surface.best[1] >= (surface.rates[surface.request.baseline] or 0.0)
    assert all(
        judge(cell.result, surface.request).reason for cell in surface.cells if surface.rates[cell.config] is None
    )


@pytest.mark.parametrize(("pick", "micro", "accumulated"), [(95, 64, 2), (16, 16, 8), (512, 128, 1), (3, 2, 64)])
def test_a_peers_batch_is_trained_at_the_held_global_batch(pick, micro, accumulated):
    task = next(task for task in TASKS if task.name == "denoiser")

    values = peers.held({"batch_size": pick, "num_workers": 1}, task)

    expected = config(batch_size=micro, gradient_accumulation_steps=accumulated, num_workers=1)
    assert values == expected.values


def test_a_task_that_is_none_is_named():
    with pytest.raises(ValueError, match=r"no task is called resnt: there are resnet, .* and all"):
        chosen("denoiser,resnt")
