"""The fake launcher is a machine with a truth that stories can rely on."""

from __future__ import annotations

import itertools
from pathlib import Path
from statistics import mean

import msgspec
import pytest

from autotune.core.records import Config
from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome, ProbeResult
from autotune.testing import FACTS, FakeLauncher, Machine


def config(batch_size: int = 64, dtype: str | None = None, workers: int = 4, channels_last: bool = False) -> Config:
    values = {
        "batch_size": batch_size,
        "gradient_accumulation_steps": 1,
        "amp_dtype": dtype,
        "num_workers": workers,
        "channels_last": channels_last,
    }
    return Config(values=values)


def probe(
    launcher: FakeLauncher, chosen: Config, folder: Path, number: int = 0, limit: int | None = None
) -> ProbeResult:
    request = ProbeRequest(target="fake", config=chosen, device="cuda:0", number=number, memory_limit_bytes=limit)
    return launcher.run(request, folder)


GRID = [
    config(batch_size, dtype, workers, channels_last)
    for batch_size, dtype, workers, channels_last in itertools.product(
        (16, 64, 256, 1024), (None, "bfloat16"), (0, 2, 8), (False, True)
    )
]


def test_the_same_seed_and_request_give_the_same_result(tmp_path: Path) -> None:
    first = FakeLauncher(seed=3).run(ProbeRequest(target="x", config=config(), device="cuda:0"), tmp_path)
    second = FakeLauncher(seed=3).run(ProbeRequest(target="x", config=config(), device="cuda:0"), tmp_path)
    other = FakeLauncher(seed=4).run(ProbeRequest(target="x", config=config(), device="cuda:0"), tmp_path)

    assert first == second
    assert first != other


def test_measurements_scatter_around_the_truth(tmp_path: Path) -> None:
    launcher = FakeLauncher()
    truth = launcher.throughput(config())
    assert truth is not None

    rates = [probe(launcher, config(), tmp_path, number).measurement.samples_per_second for number in range(20)]

    assert mean(rates) == pytest.approx(truth, rel=0.01)
    assert len(set(rates)) == 20


def test_without_noise_the_measurement_is_the_truth(tmp_path: Path) -> None:
    launcher = FakeLauncher(machine=Machine(noise_between_probes=0, noise_between_steps=0))

    result = probe(launcher, config(), tmp_path)

    assert result.measurement.samples_per_second == pytest.approx(launcher.throughput(config()))


def test_the_best_configuration_is_a_trade_between_all_knobs() -> None:
    best = FakeLauncher().best(GRID)

    assert best == config(256, "bfloat16", 8, True)


def test_memory_ends_the_range_of_batch_sizes(tmp_path: Path) -> None:
    launcher = FakeLauncher()

    result = probe(launcher, config(1024), tmp_path)

    assert result.outcome is Outcome.OOM_DEVICE
    assert launcher.throughput(config(1024)) is None


def test_a_limit_in_the_request_is_kept(tmp_path: Path) -> None:
    needed = int(Machine().needed_bytes(config()))

    outcomes = [probe(FakeLauncher(), config(), tmp_path, limit=needed + extra).outcome for extra in (0, 2)]

    assert outcomes == [Outcome.OOM_DEVICE, Outcome.OK]


def test_too_few_workers_show_as_waiting_for_data(tmp_path: Path) -> None:
    shares = [
        probe(FakeLauncher(), config(256, "bfloat16", workers), tmp_path).measurement.data_wait_share
        for workers in (0, 1, 8)
    ]

    assert shares[0] > 0.5
    assert shares[1] > 0.5
    assert shares[2] == 0


def test_computing_and_loading_alone_follow_the_model(tmp_path: Path) -> None:
    chosen, machine = config(256, "bfloat16", 4), Machine(noise_between_probes=0.0)

    measured = probe(FakeLauncher(machine=machine), chosen, tmp_path).measurement

    computing = machine.computing_seconds(chosen) + machine.optimizer_seconds
    assert measured.compute_only.samples_per_second == pytest.approx(256 / computing)
    assert measured.loader_only.samples_per_second == pytest.approx(256 / machine.loading_seconds(chosen))
    assert measured.loader_only.samples == 4 * 256


def test_a_synthetic_batch_has_no_loader_to_tell_apart(tmp_path: Path) -> None:
    synthetic = msgspec.structs.replace(FACTS, data="batch")

    measured = probe(FakeLauncher(facts=synthetic), config(), tmp_path).measurement

    assert (measured.compute_only, measured.loader_only) == (None, None)


def test_a_scripted_fault_replaces_the_model(tmp_path: Path) -> None:
    launcher = FakeLauncher(
        faults={ProbeRequest: lambda request: Outcome.TIMEOUT if request.config.batch_size == 64 else None}
    )

    assert probe(launcher, config(64), tmp_path).outcome is Outcome.TIMEOUT
    assert probe(launcher, config(16), tmp_path).outcome is Outcome.OK


def test_the_clock_adds_up_what_probes_took(tmp_path: Path) -> None:
    launcher = FakeLauncher()

    results = [probe(launcher, config(size), tmp_path) for size in (16, 1024)]

    assert launcher.clock() == pytest.approx(sum(result.elapsed_seconds for result in results))


def test_one_more_knob_at_its_default_draws_no_other_noise(tmp_path: Path) -> None:
    chosen = config()
    wider = Config(values={**chosen.values, "tf32": False, "pin_memory": None})

    assert probe(FakeLauncher(), chosen, tmp_path).measurement == probe(FakeLauncher(), wider, tmp_path).measurement


def test_what_a_probe_times_alone_is_as_noisy_as_its_steps(tmp_path: Path) -> None:
    launcher = FakeLauncher(machine=Machine(noise_between_probes=0.1, noise_between_steps=0.0))

    found = [probe(launcher, config(), tmp_path, number).measurement for number in range(3)]

    paces = [one.step_seconds[0] / one.compute_only.seconds[0] for one in found]
    assert len({one.compute_only.seconds[0] for one in found}) == 3
    assert max(paces) == pytest.approx(min(paces))
