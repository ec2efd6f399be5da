"""A launcher on a simulated machine whose best configuration is known: for stories, simulations and documentation."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from autotune.core.records import Config, Environment, TargetFacts, Value
from autotune.core.requests import InspectRequest, ProbeBudget, ProbeRequest, Request, ResultT
from autotune.core.results import (
    Communication,
    Compilation,
    Failure,
    Inspection,
    IsolatedTiming,
    Measurement,
    MemoryPeak,
    Outcome,
    ProbeResult,
    Result,
)
from autotune.core.stats import FEWEST_WINDOW_BLOCKS, clearly_slower
from autotune.gradient_noise.records import NoiseScaleRequest, NoiseScaleResult
from autotune.knobs import KNOBS
from autotune.knobs.base import SHORT_CYCLE
from autotune.launch.base import REQUEST, RESULT
from autotune.launch.files import open_log, store
from autotune.memory.records import ShapeRun, ShapeRunRequest
from autotune.precision.records import PrecisionCheckRequest, PrecisionCheckResult
from autotune.testing.machine import ENVIRONMENT, FACTS, Machine, dtype_of
from autotune.testing.simulated_results import paired_losses, predicted_peaks, sampled_gradients
from autotune.units import format_bytes

_START_OF_TIME = datetime(2026, 1, 1, tzinfo=UTC)  # of the simulated clock
_STARTING = {"start": 2.0, "load": 0.5, "build": 1.0}  # simulated seconds of the phases before a measurement
_GIB = 2**30
WARM = 0.1  # share of compiling that remains with the code in the cache (docs/notes/compiling.md 1)


class FakeLauncher:
    """A launcher without processes: deterministic, instant, and with a known truth.

    The same `seed` and the same requests give the same results. `faults` may end a request unlike the model: for a kind
    of request, a function returns the outcome, or None to let the model decide. `results` are functions that return the
    result of a kind of request instead of the model; a kind that neither knows has an empty result with outcome OK. In
    a precision check a configuration with one of `bad_dtypes` as `amp_dtype` learns less. Time is simulated: `clock`
    returns the seconds that all requests have taken, each of them starting with `starting_seconds` by phase.
    """

    def __init__(
        self,
        *,
        machine: Machine | None = None,
        facts: TargetFacts = FACTS,
        environment: Environment = ENVIRONMENT,
        faults: Mapping[type[Request[Any]], Callable[[Any], Outcome | None]] | None = None,
        results: Mapping[type[Request[Any]], Callable[[Any], Result]] | None = None,
        bad_dtypes: Collection[str] = (),
        starting_seconds: Mapping[str, float] = _STARTING,
        seed: int = 0,
    ) -> None:
        self.machine = machine or Machine()
        self._facts, self._environment, self._seed, self._bad_dtypes = facts, environment, seed, bad_dtypes
        self._starting_seconds = dict(starting_seconds)
        self._faults = dict(faults or {})
        self._results: dict[type[Request[Any]], Callable[[Any], Result]] = {
            ProbeRequest: self._probe,
            PrecisionCheckRequest: self._compare,
            NoiseScaleRequest: self._sample_gradients,
            ShapeRunRequest: self._shape_run,
            InspectRequest: self._inspect,
            **(results or {}),
        }
        self._elapsed_seconds = 0.0
        self._cached: set[Config] = set()  # those whose code was generated
        self._lock = threading.Lock()

    def clock(self) -> float:
        """Return the simulated seconds since the start; pass it where `time.monotonic` is injected."""
        return self._elapsed_seconds

    def throughput(self, config: Config) -> float | None:
        """Return the true samples/s, without noise; None if the configuration does not fit into memory."""
        if self.machine.needed_bytes(config) >= self.machine.memory_bytes:
            return None
        return config.global_batch_size() / self.machine.step_seconds(config)

    def best(self, configs: Iterable[Config]) -> Config:
        """Return the configuration of the highest true throughput. Raises `ValueError` if none fits."""
        rates = {config: rate for config in configs if (rate := self.throughput(config)) is not None}
        return max(rates, key=rates.__getitem__)

    def run(self, request: Request[ResultT], folder: Path) -> ResultT:
        """Return the result by the model; see `Launcher`."""
        store(folder, REQUEST, request)
        fault = self._faults.get(type(request))
        outcome = fault(request) if fault else None
        if outcome is None or outcome is Outcome.OK:
            model: Callable[[Any], Result] = self._results.get(type(request), _empty)
            result = cast("ResultT", model(request))
        else:
            result = request.failed(outcome, self._scripted(request, outcome))
        if not isinstance(request, InspectRequest):  # an inspection takes no simulated time
            result = self._timed(result)
        with open_log(folder) as log:
            log.write(f"simulated {type(request).__name__}: {result.outcome}\n".encode())
        store(folder, RESULT, result)
        return result

    def _timed(self, result: ResultT) -> ResultT:
        phases = {**self._starting_seconds, **result.phase_seconds}
        with self._lock:
            began = self._elapsed_seconds
            self._elapsed_seconds += sum(phases.values())
        return replace(
            result,
            phase_seconds=phases,
            started_at=(_START_OF_TIME + timedelta(seconds=began)).isoformat(timespec="seconds"),
            elapsed_seconds=sum(phases.values()),
        )

    def _probe(self, request: ProbeRequest) -> ProbeResult:
        if (full := self._out_of_memory(request, request.config)) is not None:
            return request.failed(Outcome.OOM_DEVICE, full)
        measurement = self._measure(request)
        compiling = measurement.compilation.seconds if measurement.compilation else 0.0
        phases = {"warm-up": sum(measurement.warmup_seconds) + compiling, "measure": sum(measurement.step_seconds)}
        return ProbeResult(outcome=Outcome.OK, measurement=measurement, phase_seconds=phases)

    def _compare(self, request: PrecisionCheckRequest) -> PrecisionCheckResult:
        pair = (request.reference, request.candidate)
        if (full := self._out_of_memory(request, *pair)) is not None:
            return request.failed(Outcome.OOM_DEVICE, full)
        ran = [request.candidate if role == "candidate" else request.reference for role in request.roles]
        step_seconds = len(request.seeds) * sum(map(self.machine.step_seconds, ran))
        request = replace(request, steps=max(1, min(request.steps, int(request.max_seconds / step_seconds))))
        seconds = request.steps * step_seconds
        losses = paired_losses(request, bad=dtype_of(request.candidate) in self._bad_dtypes)
        runs = tuple(run for run in losses if run.role in request.roles)
        return PrecisionCheckResult(outcome=Outcome.OK, runs=runs, phase_seconds={"measure": seconds})

    def _sample_gradients(self, request: NoiseScaleRequest) -> NoiseScaleResult:
        if (full := self._out_of_memory(request, request.config)) is not None:
            return request.failed(Outcome.OOM_DEVICE, full)
        seconds = (request.least_steps + request.micro_batches) * self.machine.step_seconds(request.config)
        sample = sampled_gradients(request, self.machine.noise_scale)
        return NoiseScaleResult(outcome=Outcome.OK, sample=sample, phase_seconds={"measure": seconds})

    def _shape_run(self, request: ShapeRunRequest) -> ShapeRun:
        arms = predicted_peaks(request, self.machine)
        return ShapeRun(outcome=Outcome.OK, arms=arms, phase_seconds={"measure": 1.0 * len(arms)})

    def _inspect(self, request: InspectRequest) -> Inspection:
        return Inspection(environment=self._environment, facts=self._facts if request.target else None)

    def _out_of_memory(self, request: Request[Any], *configs: Config) -> Failure | None:
        """Return the failure of the first that does not fit; None if all fit."""
        needed, limit = max(map(self.machine.needed_bytes, configs)), self._limit_bytes(request)
        return None if needed < limit else _full(needed, limit)

    def _scripted(self, request: Request[Any], outcome: Outcome) -> Failure:
        if isinstance(request, ProbeRequest) and outcome is Outcome.OOM_DEVICE:
            return _full(self.machine.needed_bytes(request.config), self._limit_bytes(request))
        return Failure(phase="warm-up", message=f"a scripted {outcome}", evidence="scripted by the fake launcher")

    def _limit_bytes(self, request: Request[Any]) -> int:
        return min(self.machine.memory_bytes, request.memory_limit_bytes or self.machine.memory_bytes)

    def _measure(self, request: ProbeRequest) -> Measurement:
        machine, budget, asked = self.machine, request.budget, request.config.gradient_accumulation_steps
        cycle = min(asked, SHORT_CYCLE) if request.short_cycles and not self._facts.owns_loop else asked
        config = replace(request.config, values={**request.config.values, "gradient_accumulation_steps": cycle})
        chance = random.Random(f"{self._seed} {request.seed} {request.number} {_changes(request.config)}")
        pace = max(0.5, chance.gauss(1, machine.noise_between_probes))
        truth = machine.step_seconds(config) * pace
        capped, count = _step_counts(budget, truth)
        rate = request.config.global_batch_size() / (machine.step_seconds(request.config) * pace)
        best = request.incumbent_samples_per_second
        cut_short = best is not None and clearly_slower((rate,) * FEWEST_WINDOW_BLOCKS, best)
        count = max(2, count // 2) if cut_short else count

        def seconds(number: int) -> tuple[float, ...]:
            return tuple(truth * max(0.5, chance.gauss(1, machine.noise_between_steps)) for _ in range(number))

        warmup, steps = seconds(min(capped, budget.min_warmup_steps)), seconds(count)
        round_samples = config.batch_size * max(1, int(config.values.get("num_workers") or 0))
        round_seconds = machine.loading_seconds(config) * round_samples / config.global_batch_size()
        computing = machine.computing_seconds(config) + machine.optimizer_seconds + machine.exchange_seconds
        alone = machine.computing_seconds(config) / cycle * pace
        exchanging = alone + machine.exchange_seconds * pace
        pairs = Communication(without_seconds=(alone,) * 3, with_seconds=(exchanging,) * 3)
        loads = self._facts.tunes_loader and not self._facts.owns_loop
        wait_share = machine.waiting_seconds(config) / machine.step_seconds(config)
        return Measurement(
            samples=(config.global_batch_size(),) * count,
            step_seconds=steps,
            loader_wait_seconds=tuple(step * wait_share for step in steps),
            losses=tuple(2.3 * math.exp(-step / 200) for step in range(len(warmup) + count)),
            warmup_seconds=warmup,
            accumulation_steps=asked,
            micro_batches_per_step=cycle,
            update_seconds=(machine.optimizer_seconds,) * count,
            first_batch_seconds=machine.loading_seconds(config),
            memory=_peak(int(machine.needed_bytes(config))),
            compute_only=_isolated(computing * pace, config.global_batch_size()) if loads else None,
            loader_only=_isolated(round_seconds * pace, round_samples) if loads else None,
            communication=pairs if self._facts.ranks > 1 and not self._facts.owns_loop else None,
            relative_half_width=1.96 * machine.noise_between_steps / math.sqrt(count),
            cut_short=cut_short,
            compilation=self._compiled(request.config),
        )

    def _compiled(self, config: Config) -> Compilation | None:
        """Return what a probe compiles: everything the first time, a tenth after a probe of the same configuration."""
        if not config.values.get("compile_mode"):
            return None
        is_cold = config not in self._cached
        self._cached.add(config)
        seconds = self.machine.compiling_seconds * (1.0 if is_cold else WARM)
        return Compilation(
            frames=1, graphs=1, graph_breaks=0, recompilations=0, seconds=seconds,
            cache_hits=int(not is_cold), cache_misses=int(is_cold),
        )  # fmt: skip


def _step_counts(budget: ProbeBudget, seconds: float) -> tuple[int, int]:
    """Return the most steps of that length, in seconds, and the steps of a window."""
    most = max(2, math.ceil(budget.max_seconds / seconds))
    return most, min(most, max(budget.min_steps, min(budget.max_steps, math.ceil(budget.min_seconds / seconds))))


def _isolated(seconds: float, samples: int) -> IsolatedTiming:
    return IsolatedTiming(seconds=(seconds,) * 3, samples=samples)


def _peak(needed: int) -> MemoryPeak:
    return MemoryPeak(
        process_bytes=2 * _GIB, allocated_bytes=int(needed * 0.93), reserved_bytes=needed, device_used_bytes=needed,
        allocator_retries=0,
    )  # fmt: skip


def _changes(config: Config) -> dict[str, Value]:
    """Return the values other than the knobs' defaults: noise seeded with them does not change with one more knob."""
    defaults = {one.name: one.default for one in KNOBS}
    return {name: value for name, value in sorted(config.values.items()) if value != defaults.get(name)}


def _full(needed: float, limit: int) -> Failure:
    message = f"CUDA out of memory: {format_bytes(needed)} needed of {format_bytes(limit)}."
    return Failure(phase="warm-up", message=message, evidence="torch.OutOfMemoryError")


def _empty(request: Request[Any]) -> Result:
    result: Result = request.kind().result(outcome=Outcome.OK)
    return result
