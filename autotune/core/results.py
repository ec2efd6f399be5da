"""The results of a probe, and records derived from them: outcome, measurement, failure, trial, verdict.

Raw values are kept and statistics derived. JSON has no NaN: a loss that is not finite is stored as `null`.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal

from msgspec import field

from autotune.core.communication import Communication as Communication
from autotune.core.compilation import Compilation as Compilation
from autotune.core.interference_readings import GpuUse, HostInterference
from autotune.core.isolated_timing import IsolatedTiming as IsolatedTiming
from autotune.core.memory_breakdown import AllocationSite
from autotune.core.memory_peak import MemoryPeak as MemoryPeak
from autotune.core.notices import Notice
from autotune.core.rank_reading import RankReading as RankReading
from autotune.core.records import PROTOCOL_VERSION, Config, Environment, Purpose, Record, TargetFacts, Value

Isolation = Literal["fork", "fresh"]  # forked from a process that has torch imported; exec'd
# The least that a minor page fault takes of a step: 0.8 to 6 us by machine (decisions/0084), so each probe measures it.
FAULT_SECONDS = 1e-6


class Outcome(StrEnum):
    """The end of a probe. `out_of_memory` and `retried` determine how the search treats it."""

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
        """Whether memory ran out: a larger batch, all else equal, would also fail."""
        return self in (Outcome.OOM_DEVICE, Outcome.OOM_HOST, Outcome.OOM_SHM, Outcome.TOO_LARGE)

    @property
    def retried(self) -> bool:
        """Whether it may be an accident: the probe is tried once more in another process before it is judged."""
        return self in (Outcome.CRASHED, Outcome.DEVICE_FAULT, Outcome.COMPILE_FAILED)


class Measurement(Record, frozen=True, kw_only=True):
    """The measurement of one probe: one entry per optimizer step or block of short ones, warm-up recorded apart."""

    steps_per_block: int = 1  # optimizer steps of each entry of the window; more than 1 where steps are very short
    samples: tuple[int, ...]  # per entry of the window
    step_seconds: tuple[float, ...]  # same length; wall time from the end of one entry to the end of the next
    loader_wait_seconds: tuple[float, ...]  # same length; the part of it spent waiting for batches
    losses: tuple[float | None, ...]  # of every warm-up step and entry of the window; mean; None = not finite
    warmup_seconds: tuple[float, ...]  # per optimizer step
    calibration_skips: int = 0  # steps that the gradient scaler skipped before the first successful one
    skipped_steps: int = 0  # steps skipped after that
    tokens: tuple[int, ...] | None = None  # per entry, where the batch has `input_ids`
    first_batch_seconds: float = 0.0
    loader_restarts: int = 0  # epochs begun inside the window
    accumulation_steps: int = 1  # micro-batches of an optimizer step, as the configuration says
    micro_batches_per_step: int = 1  # as run: 2 in a search probe of more, whose rates follow (decisions/0046)
    update_seconds: tuple[float, ...] = ()  # of the optimizer in the last step of each entry; (): it was not timed
    memory: MemoryPeak
    validated_batches: int = 0
    relative_half_width: float | None = None  # 95 %, by batch means; None: too few blocks to say
    noisy: bool = False  # the window hit its cap before the target precision
    cut_short: bool = False  # clearly slower than the best so far: the window ended early, its rate is right but rough
    compute_only: IsolatedTiming | None = None  # None: there is no loader to tell it from
    loader_only: IsolatedTiming | None = None
    communication: Communication | None = None  # of ranks that train together; None: one rank, or a loop not led
    interference: HostInterference | None = field(default=None, name="contamination")
    memory_track: tuple[tuple[int, int], ...] = ()  # (step of the window, bytes used at its end), thinned out
    shapes_vary: bool = False  # batches differed in more than their number of samples
    worst_batches: int = 0  # micro-batches of the target's worst case trained after the window; 0: none known
    # Of the host, for watching: a plain loop is faster by so much at most.
    watching_seconds_per_step: float | None = field(default=None, name="own_seconds_per_step")
    paused_seconds: float = 0.0  # of evaluations and checkpoints inside the window, which its seconds leave out
    page_faults: int | None = None  # minor ones of this process in the window, its workers' aside; None: not counted
    fault_seconds: float | None = None  # that one takes by itself; None: there were none, or an earlier version
    busy_seconds: tuple[float, ...] = ()  # of one of several ranks, per entry: see `RankReading`
    ranks: tuple[RankReading, ...] = ()  # of each of several, of which the slowest is measured; (): one process
    compilation: Compilation | None = None  # of torch.compile, until the window ended; None: nothing, or not noted

    def __post_init__(self) -> None:
        if not self.step_seconds or len(self.step_seconds) != len(self.samples):
            raise ValueError(f"{len(self.samples)} sample counts for {len(self.step_seconds)} steps")

    @property
    def steps(self) -> int:
        """The number of optimizer steps in the window."""
        return self.steps_per_block * len(self.step_seconds)

    @property
    def trained_steps(self) -> int:
        """The number of optimizer steps in warm-up and window."""
        return len(self.losses) + self.steps - len(self.samples)

    @property
    def samples_per_second(self) -> float:
        """Throughput of the window: samples over wall time (the mean, because the tail is real time).

        In short cycles, the rate of full cycles is computed: at least the rate that was run (a full cycle has fewer
        updates and exchanges per sample), at most that of loading alone.
        """
        as_run = sum(self.samples) / sum(self.step_seconds)
        if self.cycle_ratio == 1:
            return as_run
        full = self._full_rate(sum(self.samples), sum(self.step_seconds))
        return max(as_run, min(full, self.loader_samples_per_second or math.inf))

    @property
    def compute_samples_per_second(self) -> float | None:
        """Throughput of computing alone; None: there was no loader to tell it from, or it was too short to time."""
        alone = self.compute_only
        if alone is None or min(alone.seconds) <= 0:
            return None
        return self._full_rate(alone.samples, alone.samples / alone.samples_per_second)

    @property
    def loader_samples_per_second(self) -> float | None:
        """Throughput of loading alone; None: there was no loader, or it was too fast to time."""
        alone = self.loader_only
        return alone.samples_per_second if alone and min(alone.seconds) > 0 else None

    @property
    def cycle_ratio(self) -> float:
        """The micro-batches of an optimizer step over those that were run; 1.0: full cycles were run."""
        return self.accumulation_steps / self.micro_batches_per_step

    @property
    def optimizer_seconds(self) -> float | None:
        """Seconds of the optimizer's update in each step; None: it was not timed."""
        return sum(self.update_seconds) / len(self.update_seconds) if self.update_seconds else None

    @property
    def once_seconds(self) -> float:
        """Seconds of an optimizer step that do not grow with its micro-batches: the update, and an exposed exchange."""
        update, pairs = self.optimizer_seconds or 0.0, self.communication
        computing = sum(self.step_seconds) / self.steps - update
        return update + (pairs.exposed_in(computing, self.micro_batches_per_step) if pairs else 0.0)

    @property
    def fault_share(self) -> float | None:
        """Share of the window, pauses included, that page faults took, about; None: they were not counted."""
        faults, seconds = self.page_faults, sum(self.step_seconds) + self.paused_seconds
        return None if faults is None else min(1.0, faults * max(FAULT_SECONDS, self.fault_seconds or 0.0) / seconds)

    @property
    def samples_per_step(self) -> float:
        """Samples of an optimizer step of full cycles."""
        return self.cycle_ratio * sum(self.samples) / self.steps

    def _full_rate(self, samples: float, seconds: float) -> float:
        """Samples/s of full cycles by those of the cycles that were run: fewer end with an exchange and an update."""
        ends = samples * self.steps / sum(self.samples) * self.once_seconds
        return samples / (seconds - (1 - 1 / self.cycle_ratio) * min(ends, seconds))

    @property
    def tokens_per_second(self) -> float | None:
        """Throughput in tokens, where the target has tokens."""
        return None if self.tokens is None else sum(self.tokens) / sum(self.samples) * self.samples_per_second

    @property
    def data_wait_share(self) -> float:
        """Share of the window in which nothing was computed because batches were missing, 0..1.

        An accelerator goes on computing what it was given while the host waits for the loader. It cannot starve for
        more than steps take beyond computing alone.
        """
        waited = min(1.0, sum(self.loader_wait_seconds) / sum(self.samples) * self.samples_per_second)
        computing = self.compute_samples_per_second
        if self.memory.reserved_bytes is None or computing is None:
            return waited
        return max(0.0, min(waited, 1 - self.samples_per_second / computing))


class Failure(Record, frozen=True, kw_only=True):
    """The reason why a probe has no measurement."""

    phase: str  # start | load | build | warm-up | alone | measure | worst | validate
    message: str  # one line, the user's own error first
    evidence: str  # how we know: an exception type, an exit status, a counter
    traceback: str = ""
    user_frame: str = ""  # file:line of the innermost frame in the user's code
    sites: tuple[AllocationSite, ...] = ()  # of a profile that ran out of memory: whose tensors took it; (): unknown


class Result(Record, frozen=True, kw_only=True):
    """The record that the process of a request leaves behind. Every outcome but OK has a failure."""

    protocol: int = PROTOCOL_VERSION
    outcome: Outcome
    failure: Failure | None = None
    phase_seconds: dict[str, float] = {}
    started_at: str = ""  # UTC, ISO 8601
    elapsed_seconds: float = 0.0
    isolation: Isolation | None = None  # how its process came to be; None: written before there were two ways
    isolation_reason: str = ""  # why it was a fresh one, or imported anew what forked ones share

    def __post_init__(self) -> None:
        if (self.outcome is Outcome.OK) != (self.failure is None):
            raise ValueError(f"outcome {self.outcome} does not fit failure {self.failure}")

    @property
    def why(self) -> str:
        """The first line of the failure, without its full stop; empty if there is none."""
        return self.failure.message.strip().partition("\n")[0].rstrip(".") if self.failure else ""


class ProbeResult(Result, frozen=True, kw_only=True):
    """The result of a `ProbeRequest`: OK has a measurement."""

    measurement: Measurement | None = None
    gpu: GpuUse | None = None
    worker: str = ""  # that ran it, in a search over several machines; empty: the searching one

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.outcome is Outcome.OK) != (self.measurement is not None):
            raise ValueError(f"outcome {self.outcome} does not fit measurement {self.measurement}")

    @property
    def samples_per_joule(self) -> float | None:
        """Samples of the window for the energy that the GPU took during it; None where the GPU does not count it.

        The counter moves every 0.1 s: over a window of 2 s this is right to 5 % (docs/notes/gpu.md 1).
        """
        if self.measurement is None or self.gpu is None or not self.gpu.energy_joules:
            return None
        return sum(self.measurement.samples) / self.gpu.energy_joules


class Inspection(Result, frozen=True, kw_only=True):
    """The result of an `InspectRequest`: facts of the device, and of the target if there was one."""

    outcome: Outcome = Outcome.OK
    environment: Environment | None = None
    facts: TargetFacts | None = None
    process_bytes: int | None = None  # resident set with model and data, before the first step; on a CPU only


class Trial(Record, frozen=True, kw_only=True):
    """A numbered probe of a study."""

    number: int
    purpose: Purpose
    config: Config
    result: ProbeResult
    repeats: int | None = None  # number of the probe with interference that this one repeats
    seed: int = 0


class Verdict(Record, frozen=True, kw_only=True):
    """The judgement of an objective on a result. Every constraint is always present; above 0 means violated."""

    value: float | None  # the objective's score, maximised; None: nothing was measured
    constraints: dict[str, float]
    reason: Notice | None = None  # why infeasible
    training_share: float = 1.0  # of the planned run (`Goal.run_length`), which compiles first; in the value already

    @property
    def why(self) -> str:
        """The reason, on one line; empty if there is none."""
        return self.reason.text.strip().partition("\n")[0] if self.reason else ""

    @property
    def feasible(self) -> bool:
        """Whether the probe was measured and violates no constraint."""
        return self.value is not None and all(violation <= 0 for violation in self.constraints.values())


class LossVerdict(Record, frozen=True, kw_only=True):
    """The judgement of paired losses on one arithmetic against full precision. `unstable` and `worse` exclude it."""

    verdict: Literal["ok", "worse", "unstable", "inconclusive"]
    values: dict[str, Value]  # of the knobs that change arithmetic, as they were compared
    reason: Notice  # with the numbers
    batch_size: int  # micro-batch at which it was compared
    steps: int = 0  # optimizer steps of every run that was judged
    seeds: int = 0
    difference: float | None = None  # mean over the last ten steps, as a share of the full-precision loss decrease
    allowed: float | None = None  # the share that would have been accepted
    # What may decide an inconclusive test if there is more of it.
    remedy: Literal["", "seeds", "steps", "time"] = ""

    @property
    def excludes(self) -> bool:
        """Whether the arithmetic must not be recommended."""
        return self.verdict in ("unstable", "worse")
