"""A training machine in closed form, with a known best configuration: for stories, simulations and documentation."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from autotune import codec
from autotune.forecast import DryRun
from autotune.gradients import NoiseScaleResult
from autotune.launch.base import REQUEST, RESULT
from autotune.launch.fake_losses import paired_losses
from autotune.launch.fake_machine import Machine as Machine
from autotune.launch.fake_machine import dtype_of
from autotune.launch.fake_memory import foretold
from autotune.launch.fake_noise import sampled_gradients
from autotune.launch.fake_place import ENVIRONMENT as ENVIRONMENT
from autotune.launch.fake_place import FACTS as FACTS
from autotune.launch.files import open_log, store
from autotune.records import Config, Environment, TargetFacts
from autotune.requests import (
    DryRunRequest,
    InspectRequest,
    NoiseScaleRequest,
    ProbeRequest,
    StabilityRequest,
)
from autotune.results import (
    Alone,
    Failure,
    Inspection,
    Measurement,
    MemoryPeak,
    Outcome,
    ProbeResult,
    StabilityResult,
)
from autotune.stats import FEWEST_BLOCKS, clearly_slower
from autotune.units import format_bytes

_START_OF_TIME = datetime(2026, 1, 1, tzinfo=UTC)  # of the simulated clock
_GIB = 2**30


class FakeLauncher:
    """A launcher without processes: deterministic, instant, and honest about its truth.

    The same `seed` and the same requests give the same results. `faults` may end a probe otherwise than the model
    would: it returns the outcome, or None to let the model decide. `comparison_faults` does the same for comparisons
    of losses, in which a configuration with one of `bad_dtypes` as `amp_dtype` learns less, and `gradient_faults` for
    samples of gradients, `dry_run_faults` for dry runs. Time is simulated:
    `clock` is how much of it all probes so far have taken.
    """

    def __init__(
        self,
        *,
        machine: Machine | None = None,
        facts: TargetFacts = FACTS,
        environment: Environment = ENVIRONMENT,
        faults: Callable[[ProbeRequest], Outcome | None] | None = None,
        comparison_faults: Callable[[StabilityRequest], Outcome | None] | None = None,
        gradient_faults: Callable[[NoiseScaleRequest], Outcome | None] | None = None,
        dry_run_faults: Callable[[DryRunRequest], Outcome | None] | None = None,
        bad_dtypes: Collection[str] = (),
        seed: int = 0,
    ) -> None:
        self.machine = machine or Machine()
        self._facts, self._environment, self._faults, self._seed = facts, environment, faults, seed
        self._comparison_faults, self._gradient_faults = comparison_faults, gradient_faults
        self._bad_dtypes, self._dry_run_faults = bad_dtypes, dry_run_faults
        self._elapsed_seconds = 0.0
        self._lock = threading.Lock()

    def clock(self) -> float:
        """Simulated seconds since the start; goes where `time.monotonic` is injected."""
        return self._elapsed_seconds

    def throughput(self, config: Config) -> float | None:
        """The truth: samples per second without noise; None if the configuration does not fit into memory."""
        if self.machine.needed_bytes(config) >= self.machine.memory_bytes:
            return None
        return config.global_batch_size() / self.machine.step_seconds(config)

    def best(self, configs: Iterable[Config]) -> Config:
        """The configuration of the highest true throughput. Raises `ValueError` if none fits."""
        rates = {config: rate for config in configs if (rate := self.throughput(config)) is not None}
        return max(rates, key=rates.__getitem__)

    def probe(self, request: ProbeRequest, folder: Path) -> ProbeResult:
        """Answer from the model; see `Launcher`."""
        store(folder, REQUEST, request)
        outcome = self._outcome(request)
        measurement = self._measure(request) if outcome is Outcome.OK else None
        phases = {"start": 2.0, "load": 0.5, "build": 1.0}
        if measurement:
            phases |= {"warm-up": sum(measurement.warmup_seconds), "measure": sum(measurement.step_seconds)}
        result = ProbeResult(
            outcome=outcome,
            measurement=measurement,
            failure=None if measurement else self._failure(request, outcome),
            phase_seconds=phases,
            started_at=(_START_OF_TIME + timedelta(seconds=self._elapsed_seconds)).isoformat(timespec="seconds"),
            elapsed_seconds=sum(phases.values()),
        )
        self._leave(result, folder, f"fake probe {request.number}: {outcome}")
        return result

    def compare(self, request: StabilityRequest, folder: Path) -> StabilityResult:
        """Answer from the model; see `Launcher`."""
        store(folder, REQUEST, request)
        outcome = self._comparison_faults(request) if self._comparison_faults else None
        pair = (request.reference, request.candidate)
        if outcome is None and max(map(self.machine.needed_bytes, pair)) >= self._limit_bytes(request):
            outcome = Outcome.OOM_DEVICE
        bad = dtype_of(request.candidate) in self._bad_dtypes
        runs = paired_losses(request, bad=bad) if outcome is None else ()
        seconds = request.steps * len(request.seeds) * sum(map(self.machine.step_seconds, (*pair, pair[0])))
        phases = {"start": 2.0, "load": 0.5, "build": 1.0, "measure": seconds if runs else 0.0}
        result = StabilityResult(
            outcome=outcome or Outcome.OK,
            runs=runs,
            failure=None if runs else _scripted(outcome or Outcome.OK),
            phase_seconds=phases,
            started_at=(_START_OF_TIME + timedelta(seconds=self._elapsed_seconds)).isoformat(timespec="seconds"),
            elapsed_seconds=sum(phases.values()),
        )
        self._leave(result, folder, f"fake comparison: {result.outcome}")
        return result

    def sample_gradients(self, request: NoiseScaleRequest, folder: Path) -> NoiseScaleResult:
        """Answer from the model; see `Launcher`."""
        store(folder, REQUEST, request)
        outcome = self._gradient_faults(request) if self._gradient_faults else None
        if outcome is None and self.machine.needed_bytes(request.config) >= self._limit_bytes(request):
            outcome = Outcome.OOM_DEVICE
        sample = None if outcome else sampled_gradients(request, self.machine.noise_scale)
        seconds = (request.least_steps + request.micro_batches) * self.machine.step_seconds(request.config)
        phases = {"start": 2.0, "load": 0.5, "build": 1.0, "measure": seconds if sample else 0.0}
        result = NoiseScaleResult(
            outcome=outcome or Outcome.OK,
            sample=sample,
            failure=None if outcome is None else _scripted(outcome),
            phase_seconds=phases,
            started_at=(_START_OF_TIME + timedelta(seconds=self._elapsed_seconds)).isoformat(timespec="seconds"),
            elapsed_seconds=sum(phases.values()),
        )
        self._leave(result, folder, f"fake gradients: {result.outcome}")
        return result

    def dry_run(self, request: DryRunRequest, folder: Path) -> DryRun:
        """Answer from the model; see `Launcher`."""
        store(folder, REQUEST, request)
        outcome = self._dry_run_faults(request) if self._dry_run_faults else None
        arms = () if outcome else foretold(request, self.machine)
        phases = {"start": 2.0, "load": 0.5, "build": 1.0, "measure": 1.0 * len(arms)}
        result = DryRun(
            outcome=outcome or Outcome.OK,
            arms=arms,
            failure=None if outcome is None else _scripted(outcome),
            phase_seconds=phases,
            started_at=(_START_OF_TIME + timedelta(seconds=self._elapsed_seconds)).isoformat(timespec="seconds"),
            elapsed_seconds=sum(phases.values()),
        )
        self._leave(result, folder, f"fake dry run: {result.outcome}")
        return result

    def inspect(self, request: InspectRequest, folder: Path) -> Inspection:
        """Answer what the launcher was built with; see `Launcher`."""
        store(folder, REQUEST, request)
        inspection = Inspection(environment=self._environment, facts=self._facts if request.target else None)
        with open_log(folder) as log:
            log.write(b"fake inspection\n")
        store(folder, RESULT, inspection)
        return inspection

    def _leave(
        self,
        result: ProbeResult | StabilityResult | NoiseScaleResult | DryRun,
        folder: Path,
        said: str,
    ) -> None:
        """The simulated time passes, and log and result lie in `folder`."""
        with self._lock:
            self._elapsed_seconds += result.elapsed_seconds
        with open_log(folder) as log:
            log.write(f"{said}\n".encode())
        store(folder, RESULT, result)

    def _outcome(self, request: ProbeRequest) -> Outcome:
        scripted = self._faults(request) if self._faults else None
        if scripted is not None:
            return scripted
        fits = self.machine.needed_bytes(request.config) < self._limit_bytes(request)
        return Outcome.OK if fits else Outcome.OOM_DEVICE

    def _limit_bytes(self, request: ProbeRequest | StabilityRequest | NoiseScaleRequest) -> int:
        return min(self.machine.memory_bytes, request.memory_limit_bytes or self.machine.memory_bytes)

    def _failure(self, request: ProbeRequest, outcome: Outcome) -> Failure:
        if outcome is not Outcome.OOM_DEVICE:
            return _scripted(outcome)
        needed, limit = self.machine.needed_bytes(request.config), self._limit_bytes(request)
        message = f"CUDA out of memory: {format_bytes(needed)} needed of {format_bytes(limit)}."
        return Failure(phase="warm-up", message=message, evidence="torch.OutOfMemoryError")

    def _measure(self, request: ProbeRequest) -> Measurement:
        machine, config, budget = self.machine, request.config, request.budget
        chance = random.Random(f"{self._seed} {request.seed} {request.number} {codec.encode(config)!r}")
        truth = machine.step_seconds(config) * max(0.5, chance.gauss(1, machine.noise_between_probes))
        count = max(budget.min_steps, min(budget.max_steps, math.ceil(budget.min_seconds / truth)))
        rate, best = config.global_batch_size() / truth, request.incumbent_samples_per_second
        cut_short = best is not None and clearly_slower((rate,) * FEWEST_BLOCKS, best)
        count = max(2, count // 2) if cut_short else count

        def seconds(number: int) -> tuple[float, ...]:
            return tuple(truth * max(0.5, chance.gauss(1, machine.noise_between_steps)) for _ in range(number))

        warmup, steps = seconds(budget.min_warmup_steps), seconds(count)
        round_samples = config.batch_size * max(1, int(config.values.get("num_workers") or 0))
        round_seconds = machine.loading_seconds(config) * round_samples / config.global_batch_size()
        computing = machine.computing_seconds(config) + machine.optimizer_seconds
        loads = self._facts.tunes_loader
        wait_share = machine.waiting_seconds(config) / machine.step_seconds(config)
        needed = int(machine.needed_bytes(config))
        return Measurement(
            samples=(config.global_batch_size(),) * count,
            step_seconds=steps,
            loader_wait_seconds=tuple(step * wait_share for step in steps),
            losses=tuple(2.3 * math.exp(-step / 200) for step in range(len(warmup) + count)),
            warmup_seconds=warmup,
            first_batch_seconds=machine.loading_seconds(config),
            memory=MemoryPeak(
                process_bytes=2 * _GIB,
                allocated_bytes=int(needed * 0.93),
                reserved_bytes=needed,
                device_used_bytes=needed,
                allocator_retries=0,
            ),
            compute_only=Alone(seconds=(computing,) * 3, samples=config.global_batch_size()) if loads else None,
            loader_only=Alone(seconds=(round_seconds,) * 3, samples=round_samples) if loads else None,
            relative_half_width=1.96 * machine.noise_between_steps / math.sqrt(count),
            cut_short=cut_short,
        )


def _scripted(outcome: Outcome) -> Failure:
    return Failure(phase="warm-up", message=f"a scripted {outcome}", evidence="scripted by the fake launcher")
