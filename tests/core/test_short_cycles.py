"""The rates of an accumulation that was measured in shorter cycles, against those of the full ones, by construction."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from autotune.core.communication import Communication
from autotune.core.records import Config
from autotune.core.requests import ProbeRequest
from autotune.core.results import IsolatedTiming, Measurement, MemoryPeak
from autotune.knobs import defaults
from autotune.testing import FACTS, FakeLauncher, Machine

MICRO_BATCH, UPDATE, BATCH = 0.1, 0.05, 16  # seconds, seconds, samples


def measured(
    cycle: int, asked: int = 8, *, steps_per_block: int = 1, load: float = 0.0, exchange: float = 0.0
) -> Measurement:
    """A window of cycles of so many micro-batches, beside workers that need `load` seconds for each of them.

    `exchange`: the seconds of an exchange of gradients in each cycle.
    """
    alone = (cycle * MICRO_BATCH + exchange + UPDATE) * steps_per_block
    seconds = max(alone, cycle * load * steps_per_block)
    waited = seconds - alone
    return Measurement(
        steps_per_block=steps_per_block,
        samples=(cycle * BATCH * steps_per_block,) * 6,
        tokens=(cycle * BATCH * steps_per_block * 128,) * 6,
        step_seconds=(seconds,) * 6,
        loader_wait_seconds=(waited,) * 6,
        losses=(1.0,) * 6,
        warmup_seconds=(),
        accumulation_steps=asked,
        micro_batches_per_step=cycle,
        update_seconds=(UPDATE,) * 6,
        memory=MemoryPeak(process_bytes=1),
        compute_only=IsolatedTiming(seconds=(alone,) * 3, samples=cycle * BATCH * steps_per_block),
        communication=Communication(without_seconds=(MICRO_BATCH,), with_seconds=(MICRO_BATCH + exchange,)),
        loader_only=IsolatedTiming(seconds=(load,) * 3, samples=BATCH) if load else None,
    )  # fmt: skip


@pytest.mark.parametrize("asked", [3, 4, 8, 64])
@pytest.mark.parametrize("steps_per_block", [1, 7])
@pytest.mark.parametrize("exchange", [0.0, 0.08])
def test_cycles_of_two_tell_every_rate_of_full_ones(asked: int, steps_per_block: int, exchange: float) -> None:
    short = measured(2, asked, steps_per_block=steps_per_block, exchange=exchange)
    full = measured(asked, asked, steps_per_block=steps_per_block, exchange=exchange)

    assert short.samples_per_second == pytest.approx(full.samples_per_second)
    assert short.tokens_per_second == pytest.approx(full.tokens_per_second)
    assert short.compute_samples_per_second == pytest.approx(full.compute_samples_per_second)
    assert short.samples_per_step == pytest.approx(full.samples_per_step)
    assert short.optimizer_seconds == pytest.approx(UPDATE)


@pytest.mark.parametrize("load", [0.02, 0.11, 0.12, 0.13, 0.3])
def test_a_loader_that_is_the_limit_of_full_cycles_is_their_rate(load: float) -> None:
    """At 0.11 and 0.12 s it is fast enough for two micro-batches and an update, and not for eight."""
    assert measured(2, load=load).samples_per_second == pytest.approx(measured(8, load=load).samples_per_second)


def test_an_exchange_takes_no_longer_than_the_steps_have_room_for() -> None:
    """Other work may disturb the pairs in which it is timed by more than the steps: micro-steps stay what they are."""
    short = replace(
        measured(2, 64, exchange=0.03),
        communication=Communication(without_seconds=(MICRO_BATCH,), with_seconds=(MICRO_BATCH + 9.0,)),
    )

    assert short.samples_per_second == pytest.approx(measured(64, 64, exchange=0.03).samples_per_second)


def test_full_cycles_are_never_slower_than_what_was_run() -> None:
    # slowed for a moment
    odd = replace(measured(2, load=0.2), loader_only=IsolatedTiming(seconds=(9.0,) * 3, samples=BATCH))

    assert odd.samples_per_second == 2 * BATCH / 0.4


def test_what_was_really_run_is_kept() -> None:
    short = measured(2)

    assert (short.accumulation_steps, short.micro_batches_per_step, short.cycle_ratio) == (8, 2, 4.0)
    assert sum(short.samples) == 6 * 2 * BATCH


def test_a_record_of_earlier_versions_ran_full_cycles() -> None:
    old = replace(measured(8), accumulation_steps=1, micro_batches_per_step=1, update_seconds=())

    assert old.samples_per_second == measured(8).samples_per_second
    assert old.optimizer_seconds is None


@pytest.mark.parametrize("workers", [0, 1, 8])
@pytest.mark.parametrize(("ranks", "exchange"), [(1, 0.0), (2, 0.03)])
def test_a_search_probe_of_accumulation_tells_what_a_confirmation_tells(
    tmp_path: Path, workers: int, ranks: int, exchange: float
) -> None:
    machine = Machine(
        noise_between_probes=0.0, noise_between_steps=0.0, optimizer_seconds=0.02, exchange_seconds=exchange
    )
    quiet = FakeLauncher(machine=machine, facts=replace(FACTS, ranks=ranks))
    values = {"batch_size": 64, "gradient_accumulation_steps": 8, "num_workers": workers}
    request = ProbeRequest(target="x", config=Config(values=defaults() | values), device="cuda:0")

    for name in ("full", "short"):
        (tmp_path / name).mkdir()

    full = quiet.run(request, tmp_path / "full")
    short = quiet.run(replace(request, short_cycles=True), tmp_path / "short")

    assert full.measurement is not None and short.measurement is not None
    assert short.measurement.samples_per_second == pytest.approx(full.measurement.samples_per_second, rel=0.02)
    assert short.elapsed_seconds < full.elapsed_seconds
