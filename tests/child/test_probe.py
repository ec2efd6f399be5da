"""Real probes in real processes: what comes out of `python -m autotune.child FOLDER`, exec'd or forked."""

import errno
import mmap
import multiprocessing.util
import os
import re
import shutil
import subprocess
import sys
from contextlib import chdir
from functools import partial
from pathlib import Path

import pytest

from autotune.child import __main__ as child
from autotune.child.__main__ import main
from autotune.child.page_faults import fault_seconds, page_faults
from autotune.core import codec
from autotune.core.records import Config
from autotune.core.requests import InspectRequest, ProbeBudget, ProbeRequest
from autotune.core.results import FAULT_SECONDS, Inspection, Outcome, ProbeResult
from autotune.knobs.malloc import LEAST_GLIBC
from autotune.launch.base import LOG, REQUEST
from autotune.launch.subprocess import SubprocessLauncher
from autotune.machine.host import usable_cores
from autotune.machine.mallocs import glibc_version
from autotune.targets.commands import distributed
from tests.targets_support import HEAD
from tests.worlds import config

pytestmark = pytest.mark.slow  # real probes

SHORT = ProbeBudget(
    min_seconds=0.2, max_seconds=0.5, min_warmup_seconds=0.0, max_compute_seconds=0.1, max_loader_seconds=0.2
)
MIB = 2**20
TARGET = HEAD + """
def model():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4))

def dataset():
    return torch.utils.data.TensorDataset(torch.randn(256, 64), torch.randint(4, (256,)))

def validation():
    return dataset()
"""  # fmt: skip


@pytest.fixture
def target(tmp_path, monkeypatch):
    """A target named from its own folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(TARGET)
    return tmp_path / "model.py"


def _probe(
    launcher,
    place,
    text=TARGET,
    name="probe",
    target="model.py",
    device="cpu",
    limit=None,
    incumbent=None,
    budget=SHORT,
    **values,
):
    folder = place / name
    folder.mkdir()
    (place / "model.py").write_text(text)
    request = ProbeRequest(
        target=target, config=config(**values), device=device, budget=budget, memory_limit_bytes=limit,
        incumbent_samples_per_second=incumbent,
    )  # fmt: skip
    return launcher.run(request, folder)


@pytest.fixture
def probe(forking_launcher, tmp_path):
    """`probe(text, **request)`: the result of a forked probe of a target with this text."""
    return partial(_probe, forking_launcher, tmp_path, target=str(tmp_path / "model.py"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The folder of one whole probe, `probe`, beside its target; the user's own files are named as modules of ours."""
    place = tmp_path_factory.mktemp("recorded")
    for name in ("autotune.py", "json.py", "argparse.py"):
        (place / name).write_text("raise RuntimeError('the wrong one')")
    with chdir(place):
        result = _probe(SubprocessLauncher(), place, batch_size=32, gradient_accumulation_steps=2, num_workers=2)
    assert result.outcome is Outcome.OK, result.failure
    return place


@pytest.fixture
def whole(recorded):
    """What that probe came to."""
    return codec.read(recorded / "probe" / "result.json", ProbeResult)


def test_a_probe_measures_a_whole_training_run(whole):
    measured = whole.measurement
    assert set(measured.samples) == {64 * measured.steps_per_block}
    assert len(measured.step_seconds) == len(measured.loader_wait_seconds) >= 2
    assert all(wait <= step for wait, step in zip(measured.loader_wait_seconds, measured.step_seconds, strict=True))
    assert len(measured.losses) > len(measured.step_seconds)
    assert all(loss is not None for loss in measured.losses)
    assert measured.validated_batches == 2
    assert measured.memory.process_bytes > 50 * MIB
    assert measured.memory.workers_bytes > MIB
    assert measured.memory.reserved_bytes is None
    assert {"start", "load", "build", "warm-up", "measure", "validate"} <= set(whole.phase_seconds)
    assert whole.elapsed_seconds >= sum(whole.phase_seconds.values())


GIVES_BACK = (
    TARGET
    + """
def loss(model, batch):
    torch.zeros(48 << 18)  # 48 MiB, which glibc maps anew each time: 12,288 pages
    inputs, classes = batch
    return nn.functional.cross_entropy(model(inputs), classes)
"""
)


@pytest.mark.skipif(glibc_version() < LEAST_GLIBC, reason=f"needs glibc {LEAST_GLIBC}")
@pytest.mark.skipif(page_faults() is None, reason="page faults say nothing of their time here")
def test_page_faults_are_counted_and_memory_that_is_kept_has_none(probe):
    given_back = probe(GIVES_BACK, name="given-back").measurement
    kept = probe(GIVES_BACK, name="kept", malloc="glibc").measurement

    assert given_back.page_faults >= 12_000 * given_back.steps
    assert kept.page_faults < 1_000 * kept.steps
    assert given_back.fault_share > kept.fault_share
    seconds = sum(given_back.step_seconds) + given_back.paused_seconds
    each = given_back.fault_share * seconds / given_back.page_faults
    assert each == pytest.approx(max(FAULT_SECONDS, given_back.fault_seconds))


@pytest.mark.skipif(page_faults() is None, reason="page faults say nothing of their time here")
def test_what_a_page_fault_takes_is_measured():
    assert 0 < fault_seconds() < 0.001


def test_without_memory_to_measure_it_what_a_page_fault_takes_is_not_known(monkeypatch):
    def none_left(*_, **__):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", none_left)

    assert fault_seconds() is None


def test_short_steps_are_measured_in_blocks_for_as_long_as_others(probe):
    for attempt in range(10):  # a step of 1 ms takes 5 ms and more while other processes have the cores: no block then
        result = probe(name=f"probe-{attempt}", batch_size=2, num_threads=1)
        assert result.outcome is Outcome.OK, result.failure
        measured = result.measurement
        assert measured.steps == measured.steps_per_block * len(measured.samples)
        assert set(measured.samples) == {2 * measured.steps_per_block}
        assert sum(measured.step_seconds) >= SHORT.min_seconds
        assert measured.watching_seconds_per_step > 0
        if measured.steps_per_block > 1:
            break

    assert measured.steps_per_block > 1
    assert measured.watching_seconds_per_step < sum(measured.step_seconds) / measured.steps


LOOKS_AT_ITS_INTERPRETER = (
    TARGET
    + """
import gc, sys
steps = []

def loss(model, batch):
    if len(steps) == 3:  # as after thousands of objects: a full collection is next if the collector thinks it worth it
        for _ in range(11):
            gc.collect(1)
        [[] for _ in range(2 * gc.get_threshold()[0])]
    steps.append((len(sys.modules), gc.get_stats()[2]["collections"]))
    print("STEP", *steps[-1])
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
"""
)


@pytest.mark.parametrize("forks", [True, False])
def test_nothing_is_imported_and_nothing_of_torch_is_collected_while_steps_are_timed(forks, forking_launcher, tmp_path):
    launcher = forking_launcher if forks else SubprocessLauncher()
    long = ProbeBudget(min_seconds=1.0, min_warmup_seconds=0.0)  # for more blocks than a comparison with the best needs

    result = _probe(
        launcher, tmp_path, LOOKS_AT_ITS_INTERPRETER, target=str(tmp_path / "model.py"), batch_size=32, num_threads=1,
        incumbent=1.0, budget=long,
    )  # fmt: skip

    assert result.outcome is Outcome.OK, result.failure
    assert not result.measurement.cut_short
    steps = re.findall(r"^STEP (\d+) (\d+)$", (tmp_path / "probe" / LOG).read_text(), re.MULTILINE)
    assert len(steps) > 10
    assert len(set(steps[1:])) == 1  # the first step may import what torch loads late


def test_a_probe_that_is_cut_short_has_still_done_all_that_its_memory_is_judged_by(probe):
    long = ProbeBudget(min_seconds=2.0, max_seconds=4.0, min_warmup_seconds=0.0)  # for two blocks of 0.1 s and more

    result = probe(incumbent=1e12, batch_size=32, gradient_accumulation_steps=2, num_workers=1, budget=long)

    assert result.outcome is Outcome.OK, result.failure
    measured = result.measurement
    assert measured.cut_short
    assert len(measured.step_seconds) >= 2  # two accumulation cycles, after a warm-up of at least as many
    assert measured.validated_batches == 2
    assert measured.memory.workers_bytes > MIB
    assert measured.compute_only is not None
    assert measured.loader_only is not None


def test_the_collector_passes_over_torch_until_training_begins(probe):
    text = TARGET.replace("def model():", "import gc\ndef model():\n    assert gc.get_freeze_count()") + (
        "\ndef loss(model, batch):\n    assert not gc.get_freeze_count()\n    return model(batch[0]).mean()\n"
    )

    result = probe(text, batch_size=32)

    assert result.outcome is Outcome.OK, result.failure


def test_a_search_probe_runs_short_cycles_and_says_so(target, tmp_path, forking_launcher):
    request = ProbeRequest(
        target="model.py", config=config(batch_size=4, gradient_accumulation_steps=8, num_workers=0), device="cpu",
        budget=SHORT, short_cycles=True,
    )  # fmt: skip

    result = forking_launcher.run(request, tmp_path)

    assert result.outcome is Outcome.OK, result.failure
    measured = result.measurement
    assert (measured.accumulation_steps, measured.micro_batches_per_step) == (8, 2)
    assert set(measured.samples) == {2 * 4 * measured.steps_per_block}
    assert len(measured.update_seconds) == len(measured.samples) and min(measured.update_seconds) > 0
    assert measured.samples_per_step == 32
    assert measured.samples_per_second >= sum(measured.samples) / sum(measured.step_seconds)


def test_a_probe_tells_computing_and_loading_apart(whole):
    measured = whole.measurement
    assert measured.compute_only.samples % 64 == 0  # whole optimizer steps; interference may change their block later
    assert len(measured.compute_only.seconds) >= 3
    assert measured.loader_only.samples == 64  # a batch of each worker
    assert len(measured.loader_only.seconds) >= 3
    assert len(measured.losses) - len(measured.step_seconds) - len(measured.warmup_seconds) == 1  # settling
    assert 0 < whole.phase_seconds["alone"] < 30


def test_without_workers_a_host_tells_computing_and_loading_apart_in_the_window(probe):
    result = probe(batch_size=32, num_workers=0)

    measured = result.measurement
    assert "alone" not in result.phase_seconds
    parts = zip(measured.compute_only.seconds, measured.loader_only.seconds, measured.step_seconds, strict=True)
    assert all(computing + loading <= 1.001 * step for computing, loading, step in parts)
    told = sum(measured.compute_only.seconds) + sum(measured.loader_only.seconds)
    assert told > 0.5 * sum(measured.step_seconds)  # of the same steps, however slow the machine was in each
    assert measured.loader_only.samples == measured.samples[0]


def test_a_probe_tells_what_others_did_and_how_its_memory_moved(whole):
    measured = whole.measurement
    assert 0 <= measured.interference.run_queue_wait_share <= 1
    assert measured.interference.foreign_cores >= 0
    assert 0 < len(measured.memory_track) <= 64
    assert measured.memory_track[-1][0] < measured.steps
    most = measured.memory.process_bytes + MIB  # the kernel's counters for the two differ by some pages
    assert all(50 * MIB < held <= most for _, held in measured.memory_track)


def test_a_synthetic_batch_has_no_loader_to_tell_apart(probe):
    batch = "def batch(batch_size):\n    return torch.randn(batch_size, 64), torch.randint(4, (batch_size,))\n"

    result = probe(TARGET.partition("def dataset")[0] + batch, batch_size=32)

    assert result.outcome is Outcome.OK, result.failure
    assert result.measurement.compute_only is None
    assert result.measurement.loader_only is None
    assert "alone" not in result.phase_seconds


def test_epochs_far_shorter_than_the_workers_queue_are_measured_with_their_restarts(probe):
    short = TARGET.replace("256, 64)", "96, 64)").replace("(256,)", "(96,)")

    result = probe(short, batch_size=32, num_workers=8)

    measured = result.measurement
    assert result.outcome is Outcome.OK, result.failure
    assert measured.loader_only.samples == 8 * 32
    assert measured.loader_restarts >= len(measured.step_seconds) // 3


def test_a_window_is_of_whole_epochs_of_the_workers(probe):
    text = TARGET.partition("def dataset")[0] + """
import time

class Slow(torch.utils.data.Dataset):
    def __len__(self): return 56
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.randn(64), index % 4

def dataset(): return Slow()
"""  # fmt: skip

    found = probe(text, batch_size=8, num_workers=2).measurement

    assert found.steps % 7 == 0
    assert found.loader_restarts == found.steps / 7


def test_float16_trains_with_a_gradient_scaler(probe):
    result = probe(batch_size=32, amp_dtype="float16")

    assert result.outcome is Outcome.OK, result.failure
    assert result.measurement.skipped_steps == 0


def test_a_recorded_probe_can_be_run_again_by_hand_and_the_same_seed_gives_the_same_losses(
    recorded, whole, target, tmp_path
):
    shutil.copytree(recorded / "probe", tmp_path / "probe", ignore=shutil.ignore_patterns("result.json"))

    subprocess.run([sys.executable, "-m", "autotune.child", "probe"], check=True, cwd=tmp_path)

    again = codec.read(tmp_path / "probe" / "result.json", ProbeResult)
    assert again.outcome is Outcome.OK, again.failure
    warmed = (len(run.measurement.warmup_seconds) for run in (whole, again))  # later, blocks may differ in length
    shared = min(4, *warmed)
    assert again.measurement.losses[:shared] == whole.measurement.losses[:shared]


TELLING = HEAD + """
import os

def told():
    return float(torch.get_num_threads() + 100 * (os.environ.get("OMP_WAIT_POLICY") == "passive"))

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.ones(4), told()

def dataset():
    return Data()

def model():
    return nn.Linear(4, 1)

def optimizer(params):
    return torch.optim.SGD(params, lr=0.0)

def loss(model, batch):
    inputs, from_workers = batch
    return 0 * model(inputs).sum() + 1000 * from_workers.mean() + told()
"""  # fmt: skip


@pytest.mark.parametrize(("policy", "expected"), [(None, 1_000 + 3), ("passive", 101_000 + 103)])
def test_threads_and_their_way_of_waiting_are_set_in_the_probe_and_what_it_starts(probe, monkeypatch, policy, expected):
    """The loss tells: 1000 x what a worker sees, which computes with one thread, and what the probe sees."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)

    result = probe(TELLING, batch_size=8, num_workers=1, num_threads=3, omp_wait_policy=policy)

    assert result.outcome is Outcome.OK, result.failure
    assert set(result.measurement.losses) == {expected}


@pytest.mark.skipif(sys.platform != "linux", reason="another OpenMP runtime")
@pytest.mark.parametrize(("policy", "shown"), [("passive", True), (None, False)])
def test_the_openmp_runtime_itself_was_told_how_to_wait(target, tmp_path, monkeypatch, policy, shown):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    values = config(batch_size=32, num_threads=2, omp_wait_policy=policy)
    launcher = SubprocessLauncher(environ={"OMP_DISPLAY_ENV": "verbose"})

    launcher.run(ProbeRequest(target="model.py", config=values, device="cpu", budget=SHORT), tmp_path)

    log = (tmp_path / LOG).read_text()
    assert "GOMP_SPINCOUNT" in log  # the runtime tells its settings
    assert ("GOMP_SPINCOUNT = '0'" in log) is shown


def test_a_probe_of_an_earlier_version_names_fewer_knobs_and_means_their_defaults(tmp_path, forking_launcher):
    known = {"batch_size": 32, "gradient_accumulation_steps": 1, "amp_dtype": None, "num_workers": 0}
    target = tmp_path / "model.py"
    target.write_text(TARGET)
    request = ProbeRequest(target=str(target), config=Config(values=known), device="cpu", budget=SHORT)

    result = forking_launcher.run(request, tmp_path)

    assert result.outcome is Outcome.OK, result.failure


def test_memory_that_runs_out_under_a_limit_is_an_outcome(probe):
    wide = TARGET.replace(
        "nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4)", "nn.Linear(64, 100_000), nn.Linear(100_000, 4)"
    ).replace("randn(256, 64), torch.randint(4, (256,)", "randn(2048, 64), torch.randint(4, (2048,)")
    limit = 1200 * MIB  # a torch built for CUDA takes 700 of it

    small = probe(wide, "small", batch_size=8, limit=limit)
    large = probe(wide, "large", batch_size=2048, limit=limit)

    assert small.outcome is Outcome.OK, small.failure
    assert small.measurement.memory.bytes <= limit
    assert large.outcome is Outcome.OOM_HOST
    assert "allocate" in large.failure.message


def test_an_error_in_user_code_shows_the_users_line_first(tmp_path, monkeypatch, forking_launcher):
    monkeypatch.chdir(tmp_path)
    broken = TARGET + "\ndef loss(model, batch):\n    return batch['nothing']\n"

    result = _probe(forking_launcher, tmp_path, broken, batch_size=8)

    assert result.outcome is Outcome.USER_ERROR
    assert result.failure.user_frame.startswith("model.py:")
    assert result.failure.message.startswith("model.py:")


def test_an_error_in_a_loader_worker_shows_the_users_own_message(probe):
    broken = TARGET.replace(
        "def validation():",
        "class Broken(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 256\n"
        "    def __getitem__(self, index): raise ValueError('sample 137 is corrupt')\n"
        "def dataset(): return Broken()\n"
        "def validation():",
    )

    result = probe(broken, batch_size=8, num_workers=1)

    assert result.outcome is Outcome.USER_ERROR
    told = r"model\.py:\d+ in __getitem__: ValueError: sample 137 is corrupt \(in DataLoader worker process 0\)"
    assert re.search(f"{told}$", result.failure.message)


DEAD_DEVICE = """
import os

class PageLocked:
    def __del__(self):
        os.abort()  # as torch does where such memory is freed on a device that is gone

def illegal_access():
    error = torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
    error.error_code = 700
    return error

def loss(model, batch):
    held = PageLocked()
    raise illegal_access()
"""


def test_a_fault_of_the_device_is_told_though_memory_can_no_longer_be_freed(probe):
    result = probe(TARGET + DEAD_DEVICE, batch_size=8)

    assert result.outcome is Outcome.DEVICE_FAULT
    assert result.failure.evidence.startswith("cudaError 700")


def test_a_configuration_that_breaks_batch_norm_is_invalid_not_a_bug(probe):
    result = probe(TARGET.replace("nn.ReLU()", "nn.BatchNorm1d(256)"), batch_size=1)

    assert result.outcome is Outcome.INVALID_CONFIG


def test_a_loss_that_becomes_nan_is_recorded_not_hidden(probe):
    wild = TARGET + "\ndef optimizer(params):\n    return torch.optim.SGD(params, lr=1e30)\n"

    result = probe(wild, batch_size=32)

    assert result.outcome is Outcome.OK
    assert None in result.measurement.losses


def test_a_device_that_is_not_there_is_the_environments_fault(probe):
    result = probe(device="xpu:7", batch_size=8)

    assert result.outcome is Outcome.ENVIRONMENT
    assert "--device" in result.failure.message


def test_the_log_of_a_failed_probe_keeps_the_frames_that_are_not_the_users(target, tmp_path, capfd):
    codec.write(tmp_path / REQUEST, InspectRequest(target="model.py", device="cuda:9"))

    assert main([str(tmp_path)]) == 0

    assert "autotune/child/device.py" in capfd.readouterr().err


def test_who_loads_after_a_request_in_the_same_process_has_a_folder_for_sockets(tmp_path):
    codec.write(tmp_path / REQUEST, InspectRequest(device="cpu"))

    assert main([str(tmp_path)]) == 0

    assert Path(multiprocessing.util.get_temp_dir()).is_dir()


@pytest.mark.parametrize(("ranks", "is_kept"), [("1", False), ("2", True)])
def test_a_rank_of_a_launcher_that_goes_on_keeps_its_folder_for_sockets(tmp_path, monkeypatch, ranks, is_kept):
    monkeypatch.setenv(distributed.LEADER, "1")
    monkeypatch.setenv("WORLD_SIZE", ranks)
    monkeypatch.setattr(child, "_result", lambda *_: Inspection(outcome=Outcome.OK))
    folder = child._folder_of_sockets()
    monkeypatch.setattr(child, "_folder_of_sockets", lambda: folder)
    request = InspectRequest(target="-- torchrun --nproc-per-node 2 train.py")

    assert child._do(request, tmp_path, lambda *_: None, "", os.getpid()) == 0

    assert Path(folder).is_dir() is is_kept
    child._PROCESS.pop("tempdir", None)  # later tests of this process load, too
    shutil.rmtree(folder, ignore_errors=True)


def test_an_inspection_names_device_and_target(tmp_path, forking_launcher):
    target = tmp_path / "model.py"
    target.write_text(TARGET)

    inspection = forking_launcher.run(InspectRequest(target=str(target), device="cpu"), tmp_path)

    assert inspection.failure is None, inspection.failure
    assert inspection.environment.device == "cpu"
    assert inspection.environment.usable_cores >= 1
    assert inspection.facts.dataset_samples == 256
    assert inspection.facts.step.parameters_with_gradient == 4
    if sys.platform == "linux":
        assert 50 * MIB < inspection.process_bytes < 8 * 1024 * MIB


def test_without_a_target_only_the_machine_is_looked_at(tmp_path, forking_launcher):
    inspection = forking_launcher.run(InspectRequest(device="cpu"), tmp_path)

    assert inspection.facts is None
    assert inspection.environment.device_bytes > MIB


def test_what_the_users_shell_says_about_threads_is_respected_and_noted(tmp_path):
    shell = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "active"}

    inspection = SubprocessLauncher(environ=shell).run(InspectRequest(device="cpu"), tmp_path)

    assert inspection.environment.default_threads == 1
    assert inspection.environment.omp_wait_policy == "active"


def test_files_of_the_user_do_not_stand_in_for_ours(recorded, whole):
    assert (recorded / "json.py").is_file()
    assert whole.outcome is Outcome.OK


def test_a_torch_that_cannot_be_imported_is_the_environments_fault(target, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "torch.py").write_text("raise OSError('libtorch.so: cannot open shared object file')")

    places = f"{broken}{os.pathsep}{Path(__file__).parents[2]}"
    inspection = SubprocessLauncher(environ={"PYTHONPATH": places}).run(InspectRequest(), tmp_path)

    assert inspection.outcome is Outcome.ENVIRONMENT
    assert "libtorch.so" in inspection.failure.message


def test_tests_share_a_fork_server_whatever_their_targets_import_and_wherever_they_work(
    probe, target, forking_launcher
):
    first = probe("import html\n" + TARGET, "first", batch_size=8)
    servers = forking_launcher.fork_servers.running

    second = _probe(forking_launcher, target.parent, "import msgspec\n" + TARGET, "second", batch_size=8)

    assert (first.isolation, second.isolation) == ("fork", "fork")
    assert forking_launcher.fork_servers.running == servers


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux binds a thread to a core")
@pytest.mark.skipif(usable_cores() < 2, reason="needs two cores")
@pytest.mark.parametrize("isolation", ["fork", "fresh"])
def test_cores_are_those_of_the_process_where_openmp_binds_its_main_thread(target, tmp_path, monkeypatch, isolation):
    monkeypatch.setenv("OMP_PROC_BIND", "close")

    with SubprocessLauncher(isolation=isolation) as launcher:
        found = launcher.run(InspectRequest(target="model.py", device="cpu"), tmp_path)

    assert found.environment.usable_cores == usable_cores()
