"""What is read of a GPU while a probe measures on it, from a library that is asked like NVML and has no GPU."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from autotune.core.interference_readings import GpuUse
from autotune.core.probe_tag import TAG
from autotune.core.records import Config
from autotune.core.requests import ProbeRequest
from autotune.core.results import ProbeResult
from autotune.launch.subprocess import SubprocessLauncher
from autotune.launch.telemetry import Telemetry, summary
from autotune.machine.nvml import GpuReading, find_gpu, read_gpu

CHILD = (sys.executable, str(Path(__file__).parents[1] / "faults" / "faulty_child.py"))
UUID = "f1d0"
FOREIGN = 1  # a process that is always there and never ours


class NotFound(Exception):
    """Stands for `pynvml.NVMLError_NotFound`."""

    value = 6


class Card:
    """A driver with one GPU; the readings go on from call to call, and it lists the probes started after it."""

    NVML_CLOCK_SM = 1
    nvmlMemory_v2 = 2  # noqa: N815  # NVML's own names

    def __init__(self, foreign: tuple[int, ...] = (), percent: int | None = None) -> None:
        self.foreign, self.percent = foreign, percent
        self.joules = itertools.count(100)
        self.others = set(_tagged())  # other tests of this session may have a fork server that waits
        self.threads: set[str] = set()

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        if uuid != f"GPU-{UUID}":
            raise ValueError(uuid)
        return 7

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:  # noqa: N802
        self.threads.add(threading.current_thread().name)
        return next(self.joules) * 1000

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        pids = [*self.foreign, *(pid for pid in _tagged() if pid not in self.others)]
        return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in pids]

    def nvmlDeviceGetProcessUtilization(self, handle: int, since: int) -> list[Any]:  # noqa: N802
        """One sample of every process that computed; without any, NVML raises `NOT_FOUND`."""
        if not self.percent:
            raise NotFound
        stale = SimpleNamespace(pid=FOREIGN, timeStamp=since - 1, smUtil=90)
        return [stale, *(SimpleNamespace(pid=pid, timeStamp=since + 1, smUtil=self.percent) for pid in self.foreign)]

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=80),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=100, reserved=5, used=30),
            "nvmlDeviceGetPowerUsage": 350_000,
            "nvmlDeviceGetClockInfo": 1500,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x1 | 0x4,
        }
        if name not in answers:
            raise AttributeError(name)
        return lambda *_: answers[name]


def _tagged() -> list[int]:
    """The processes that carry a probe's tag."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # one that is on its way out
            found += [child.pid] if TAG in child.environ() else []
    return found


def probed(gpu: Card, folder: Path, *, device: str = "cuda:0", target: str = "measure") -> ProbeResult:
    request = ProbeRequest(target=target, config=Config(values={}), device=device, device_uuid=UUID)
    return SubprocessLauncher(command=CHILD, nvml=lambda: gpu).run(request, folder)


def test_a_glance_is_in_the_units_of_its_names() -> None:
    assert read_gpu(Card(), 7) == GpuReading(
        utilization=0.8,
        used_bytes=30,
        power_watts=350.0,
        energy_joules=100.0,
        sm_clock_mhz=1500,
        throttle_reasons=("power cap",),
        processes=(),
        computing=(),
    )


@pytest.mark.parametrize(("percent", "share"), [(None, 0.0), (30, 0.3)])
def test_a_process_that_only_holds_a_context_is_told_from_one_that_computes(
    tmp_path: Path, percent: int | None, share: float
) -> None:
    result = probed(Card(foreign=(FOREIGN,), percent=percent), tmp_path)

    assert result.gpu is not None
    assert result.gpu.foreign_processes == (FOREIGN,)
    assert result.gpu.foreign_share == pytest.approx(share)


def test_what_nobody_could_have_computed_is_no_share() -> None:
    class Garbled(Card):  # seen of drivers: samples of more than all there is
        def nvmlDeviceGetProcessUtilization(self, handle: int, since: int) -> list[Any]:  # noqa: N802
            return [SimpleNamespace(pid=1, timeStamp=since + 1, smUtil=4_294_967)]

    assert read_gpu(Garbled(), 7).computing == ()


def test_a_library_that_answers_nothing_gives_a_glance_of_nothing() -> None:
    assert read_gpu(object(), 7) == GpuReading()


@pytest.mark.parametrize(("uuid", "gpu"), [(UUID, 7), (f"GPU-{UUID}", 7), ("else", None), ("", None), (None, None)])
def test_a_card_is_found_as_torch_or_nvml_write_its_uuid(uuid: str | None, gpu: int | None) -> None:
    assert find_gpu(Card(), uuid) == gpu


@pytest.mark.parametrize("uuid", ["51ce", "MIG-51ce"])
def test_a_slice_of_a_card_is_found_as_torch_or_nvml_write_its_uuid(uuid: str) -> None:
    class Sliced(Card):
        def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
            return 8 if uuid == "MIG-51ce" else super().nvmlDeviceGetHandleByUUID(uuid)

    assert find_gpu(Sliced(), uuid) == 8


def test_a_probe_is_watched_while_it_measures_and_only_then(tmp_path: Path) -> None:
    gpu = Card()

    result = probed(gpu, tmp_path)

    use = result.gpu
    assert use is not None
    assert use.readings >= 2
    assert (use.utilization, use.used_bytes, use.power_watts) == (pytest.approx(0.8), 30, pytest.approx(350))
    assert use.energy_joules == use.readings - 1  # the fake counter moves with every reading
    assert use.sm_clock_mhz == (1500, 1500)
    assert use.throttle_reasons == ("power cap",)
    assert use.foreign_processes == ()
    assert next(gpu.joules) == 100 + 1 + use.readings  # one look before the probe was started, none after its window
    assert gpu.threads == {"MainThread", "autotune-telemetry"}
    assert "autotune-telemetry" not in {thread.name for thread in threading.enumerate()}


def test_who_is_on_the_card_beside_the_probe_is_told(tmp_path: Path) -> None:
    result = probed(Card(foreign=(FOREIGN,)), tmp_path)

    assert result.gpu is not None
    assert result.gpu.foreign_processes == (FOREIGN,)


def test_samples_per_joule_come_from_the_window(tmp_path: Path) -> None:
    result = probed(Card(), tmp_path)

    assert result.gpu is not None and result.measurement is not None
    assert result.gpu.energy_joules
    assert result.samples_per_joule == pytest.approx(16 / result.gpu.energy_joules)


@pytest.mark.parametrize("options", [{"device": "cpu"}, {"target": "ok"}, {"target": "kill"}])
def test_without_a_card_or_a_window_nothing_is_told(tmp_path: Path, options: dict[str, str]) -> None:
    result = probed(Card(), tmp_path, **options)

    assert result.gpu is None
    assert result.samples_per_joule is None


def test_without_a_driver_a_probe_runs_as_ever(tmp_path: Path) -> None:
    request = ProbeRequest(target="measure", config=Config(values={}), device="cuda:0", device_uuid=UUID)

    result = SubprocessLauncher(command=CHILD, nvml=lambda: None).run(request, tmp_path)

    assert result.outcome == "ok"
    assert result.gpu is None


@pytest.mark.parametrize(
    ("seen", "before", "own", "foreign"),
    [
        ((10, 20), set(), {10}, (20,)),
        ((10, 20), {20}, {10}, (20,)),
        ((10,), set(), {10}, ()),
        ((10, 20), set(), set(), ()),  # in a container: one of them is the probe, and nobody knows which
        ((10, 20), {20}, set(), (20,)),  # but this one was there before it
        ((10, os.getpid()), {os.getpid()}, {10}, ()),  # a notebook that holds a model and waits for its search
    ],
)
def test_only_who_cannot_be_the_probe_is_foreign(
    seen: tuple[int, ...], before: set[int], own: set[int], foreign: tuple[int, ...]
) -> None:
    use = summary([GpuReading(processes=seen)], before, own)

    assert use is not None
    assert use.foreign_processes == foreign


def test_readings_are_averaged_where_means_matter_and_bounded_where_extremes_do() -> None:
    readings = [
        GpuReading(utilization=0.5, used_bytes=9, power_watts=100.0, energy_joules=5.0, sm_clock_mhz=1400),
        GpuReading(utilization=1.0, used_bytes=7, power_watts=300.0, energy_joules=65.0, sm_clock_mhz=1500,
               throttle_reasons=("power brake",)),
        GpuReading(throttle_reasons=("power brake", "power cap")),
        GpuReading(processes=(8, 9), computing=((8, 0.6), (9, 0.2), (10, 0.9))),
        GpuReading(processes=(8, 9), computing=()),
    ]  # fmt: skip

    assert summary(readings, set(), own={10}) == GpuUse(
        readings=5,
        utilization=0.75,
        used_bytes=9,
        power_watts=200.0,
        energy_joules=60.0,
        sm_clock_mhz=(1400, 1500),
        throttle_reasons=("power brake", "power cap"),
        foreign_processes=(8, 9),
        foreign_share=pytest.approx(0.4),
    )


def test_a_driver_that_never_answers_does_not_hold_the_search_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.launch.telemetry.LAST_READING_SECONDS", 0.05)
    released = threading.Event()

    class Lost(Card):
        calls = itertools.count()

        def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:  # noqa: N802
            if next(self.calls):
                released.wait(30)
            return 1

    telemetry = Telemetry(Lost(), 7, lambda pid: False)
    telemetry.phase("measure")
    telemetry.phase("validate")
    use = telemetry.use()
    released.set()

    assert use is None
