"""What comes back from a probe and what is made of it: outcome, measurement, failure, trial, verdict.

Raw values are kept and statistics derived. JSON has no NaN: a loss that is not finite is stored as `null`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from autotune.records import PROTOCOL, Config, Environment, Record, TargetFacts


class Outcome(StrEnum):
    """How a probe ended. `infeasible` and `retried` say what the search makes of it."""

    OK = "ok"
    OOM_DEVICE = "oom-device"
    OOM_HOST = "oom-host"
    OOM_SHM = "oom-shm"
    TOO_LARGE = "too-large"
    UNSTABLE = "unstable"
    INVALID_CONFIG = "invalid-config"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    DEVICE_FAULT = "device-fault"
    COMPILE_FAILED = "compile-failed"
    USER_ERROR = "user-error"
    ENVIRONMENT = "environment"

    @property
    def out_of_memory(self) -> bool:
        """Some memory ran out: a larger configuration of the same arm would do no better."""
        return self in (Outcome.OOM_DEVICE, Outcome.OOM_HOST, Outcome.OOM_SHM, Outcome.TOO_LARGE)

    @property
    def infeasible(self) -> bool:
        """A property of the configuration: the sampler learns from it."""
        return self.out_of_memory or self in (Outcome.UNSTABLE, Outcome.INVALID_CONFIG, Outcome.TIMEOUT)

    @property
    def retried(self) -> bool:
        """Perhaps an accident: tried once more in a fresh process before it is judged."""
        return self in (Outcome.CRASHED, Outcome.DEVICE_FAULT, Outcome.COMPILE_FAILED)


class MemoryPeak(Record, frozen=True, kw_only=True):
    """Peaks over the whole probe, first step to validation. None: not measured on this device."""

    process_bytes: int  # resident set of the probe process
    workers_bytes: int = 0  # proportional set size of the loader workers, read once after the window
    allocated_bytes: int | None = None  # caching allocator: live tensors
    reserved_bytes: int | None = None  # caching allocator: segments held
    device_used_bytes: int | None = None  # total - free of the device at the end of the window, all processes
    allocator_retries: int | None = None

    @property
    def host_bytes(self) -> int:
        """Memory of the host: the probe and its workers."""
        return self.process_bytes + self.workers_bytes

    @property
    def bytes(self) -> int:
        """The figure that is held against the memory limit: the device's on an accelerator, else the host's."""
        if self.reserved_bytes is None:
            return self.host_bytes
        return max(self.reserved_bytes, self.device_used_bytes or 0)


class Measurement(Record, frozen=True, kw_only=True):
    """What one probe measured: one entry per optimizer step, warm-up told apart."""

    samples: tuple[int, ...]  # per optimizer step of the window
    step_seconds: tuple[float, ...]  # same length; wall time from step end to step end
    loader_wait_seconds: tuple[float, ...]  # same length; the part of it spent waiting for batches
    losses: tuple[float | None, ...]  # warm-up and window; mean over the micro-batches; None = not finite
    warmup_seconds: tuple[float, ...]
    calibration_skips: int = 0  # steps that the gradient scaler skipped before the first successful one
    skipped_steps: int = 0  # steps skipped after that
    tokens: tuple[int, ...] | None = None  # per step, where the batch has `input_ids`
    first_batch_seconds: float = 0.0
    loader_restarts: int = 0  # epochs begun inside the window
    memory: MemoryPeak
    validated_batches: int = 0
    relative_half_width: float | None = None  # 95 %, by batch means; None: too few blocks to say
    noisy: bool = False  # the window hit its cap before the target precision

    def __post_init__(self) -> None:
        if not self.step_seconds or len(self.step_seconds) != len(self.samples):
            raise ValueError(f"{len(self.samples)} sample counts for {len(self.step_seconds)} steps")

    @property
    def samples_per_second(self) -> float:
        """Throughput of the window: samples over wall time (the mean, because the tail is real time)."""
        return sum(self.samples) / sum(self.step_seconds)

    @property
    def tokens_per_second(self) -> float | None:
        """Throughput in tokens, where the target has tokens."""
        return None if self.tokens is None else sum(self.tokens) / sum(self.step_seconds)

    @property
    def data_wait_share(self) -> float:
        """Share of the window spent waiting for the loader, 0..1."""
        return min(1.0, sum(self.loader_wait_seconds) / sum(self.step_seconds))


class Failure(Record, frozen=True, kw_only=True):
    """Why a probe has no measurement."""

    phase: str  # start | load | build | warm-up | measure | validate
    message: str  # one line, the user's own error first
    evidence: str  # how we know: an exception type, an exit status, a counter
    traceback: str = ""
    user_frame: str = ""  # file:line of the innermost frame in the user's code


class ProbeResult(Record, frozen=True, kw_only=True):
    """What one probe left behind. OK has a measurement and no failure; every other outcome has a failure."""

    protocol: int = PROTOCOL
    outcome: Outcome
    measurement: Measurement | None = None
    failure: Failure | None = None
    phase_seconds: dict[str, float] = {}
    started_at: str = ""  # UTC, ISO 8601
    elapsed_seconds: float = 0.0

    def __post_init__(self) -> None:
        if (self.outcome is Outcome.OK) != (self.measurement is not None) or (self.measurement is None) == (
            self.failure is None
        ):
            raise ValueError(f"outcome {self.outcome} does not fit measurement and failure")


class Inspection(Record, frozen=True, kw_only=True):
    """The answer to an `InspectRequest`."""

    protocol: int = PROTOCOL
    environment: Environment | None = None
    facts: TargetFacts | None = None
    outcome: Outcome = Outcome.OK
    failure: Failure | None = None


class Trial(Record, frozen=True, kw_only=True):
    """A numbered probe of a study."""

    number: int
    purpose: Literal["baseline", "search", "confirm"]
    config: Config
    result: ProbeResult


class Verdict(Record, frozen=True, kw_only=True):
    """What an objective makes of a result. Every constraint is always present; above 0 means violated."""

    value: float | None  # maximised; None: nothing was measured
    constraints: dict[str, float]
    reason: str = ""  # why infeasible, in words

    @property
    def feasible(self) -> bool:
        """Measured, and no constraint violated."""
        return self.value is not None and all(violation <= 0 for violation in self.constraints.values())
