"""What is asked and what is known before a probe: configuration, goal, environment, target, request.

Every record is frozen, units are in the names (`_seconds`, `_bytes`, `_fraction` in 0..1), and constructing one
touches nothing outside it. `results.py` holds what comes back, `codec.py` the one JSON form of both.
"""

from __future__ import annotations

from typing import Literal

import msgspec

PROTOCOL = 1  # raised when a stored or sent record changes its meaning; an older reader then refuses it
Value = int | float | bool | str | None
Purpose = Literal["baseline", "search", "reference", "confirm"]  # reference: the baseline again, to see drift
Stability = Literal["off", "quick", "full"]  # quick: one paired seed; full: three


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all records: immutable, keyword-only, strict when decoded."""


class Config(Record, frozen=True, kw_only=True):
    """One point of the search space: a value for every knob, by knob name."""

    values: dict[str, Value]

    def __hash__(self) -> int:
        return hash(tuple(sorted((name, repr(value)) for name, value in self.values.items())))

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    @property
    def batch_size(self) -> int:
        """Micro-batch: samples in one forward pass on one device."""
        return int(self.values["batch_size"] or 0)

    @property
    def gradient_accumulation_steps(self) -> int:
        """Micro-batches per optimizer step."""
        return int(self.values["gradient_accumulation_steps"] or 0)

    def global_batch_size(self, world_size: int = 1) -> int:
        """Samples per optimizer step over all devices."""
        return self.batch_size * self.gradient_accumulation_steps * world_size


class Limit(Record, frozen=True, kw_only=True):
    """What the user allows a knob: explicit `values`, or an inclusive range `low`..`high`."""

    low: int | None = None
    high: int | None = None
    values: tuple[Value, ...] | None = None


class Goal(Record, frozen=True, kw_only=True):
    """What the search is to achieve, within which bounds. Part of a study's identity: resuming needs the same goal."""

    objective: Literal["throughput"] = "throughput"
    global_batch: int | None = None  # samples per optimizer step, held; None: free
    memory_limit_bytes: int | None = None  # None: all of the device's memory
    headroom_fraction: float | None = None  # of the limit, kept free; None: max(5 %, 512 MiB), 10 % if shapes vary
    stability: Stability = "quick"
    loss_tolerance: float = 0.02  # of the full-precision loss decrease; a dtype that loses more is refused (note F)
    limits: dict[str, Limit] = {}  # knob name -> what may be searched
    tune: tuple[str, ...] | None = None  # only these knobs move, the others stay at the baseline's value; None: all

    def __post_init__(self) -> None:
        if self.headroom_fraction is not None and not 0 <= self.headroom_fraction < 1:
            raise ValueError(f"headroom must be in [0, 1), got {self.headroom_fraction}")
        if self.global_batch is not None and self.global_batch < 1:
            raise ValueError(f"the global batch must be at least 1, got {self.global_batch}")
        if not 0 <= self.loss_tolerance < 1:
            raise ValueError(f"the loss tolerance must be in [0, 1), got {self.loss_tolerance}")


class Environment(Record, frozen=True, kw_only=True):
    """Where probes run: the hardware and the versions that a measurement depends on."""

    device: str  # "cpu", "cuda:0", "mps", "xpu:0"
    device_name: str
    device_bytes: int  # memory of the device; for the CPU, of the host or of its cgroup
    native_dtypes: tuple[str, ...]  # autocast dtypes that the hardware computes without emulation
    torch: str
    python: str
    platform: str
    usable_cores: int  # affinity and cgroup quota, not the number built in
    host_bytes: int
    shm_bytes: int | None = None
    cpu: str = ""
    cuda: str | None = None
    driver: str | None = None
    device_uuid: str | None = None
    capability: str | None = None  # CUDA compute capability, "9.0"
    default_threads: int | None = None  # that torch computes with on the CPU when nobody says anything; None: unknown
    omp_wait_policy: str | None = None  # OMP_WAIT_POLICY, as the user had set it

    @property
    def device_kind(self) -> str:
        """`cpu`, `cuda`, `mps` or `xpu`."""
        return self.device.partition(":")[0]


class Finding(Record, frozen=True, kw_only=True):
    """One thing that `check` found in a target: what it is, and whether it was written or inferred."""

    name: str
    text: str
    inferred: bool = False
    override: str = ""  # the line that would replace an inference


class StepFacts(Record, frozen=True, kw_only=True):
    """What one real optimizer step of the target showed."""

    loss: float | None  # None: not finite
    seconds: float
    parameters_with_gradient: int
    trainable_parameters: int  # tensors, not elements


class TargetFacts(Record, frozen=True, kw_only=True):
    """What a child process found out about the target; all that the parent ever learns of user code."""

    name: str  # the model's class
    parameter_count: int
    has_convolution: bool
    has_batch_norm: bool
    data: Literal["dataset", "iterable", "dataloader", "batch"]
    dataset_samples: int | None  # None: unknown (iterable) or synthetic
    baseline: dict[str, Value] | None = None
    space: dict[str, Limit] = {}
    global_batch_size: int | None = None
    has_validation: bool = False
    findings: tuple[Finding, ...] = ()
    step: StepFacts | None = None

    @property
    def tunes_loader(self) -> bool:
        """Whether there is a loader to tune: not if batches are synthetic."""
        return self.data != "batch"


class ProbeBudget(Record, frozen=True, kw_only=True):
    """How long one probe may take. The deadlines are seconds without a sign of life, per phase."""

    min_warmup_steps: int = 3  # optimizer steps; at least two of them must succeed besides
    min_warmup_seconds: float = 0.5
    max_compute_seconds: float = 0.5  # computing alone, on one batch again and again
    max_loader_seconds: float = 1.0  # loading alone, after what the workers held ready is thrown away
    min_steps: int = 8
    max_steps: int = 2000
    min_seconds: float = 1.5
    max_seconds: float = 4.0  # interference is slow: more rounds help, longer windows do not (note C2)
    target_precision: float = 0.03  # relative half width of the 95 % interval by batch means
    start_deadline_seconds: float = 120.0
    load_deadline_seconds: float = 300.0
    build_deadline_seconds: float = 600.0
    step_deadline_seconds: float = 180.0  # warm-up, measuring and validation: between two optimizer steps
    total_deadline_seconds: float = 1800.0


class ProbeRequest(Record, frozen=True, kw_only=True, tag="probe", tag_field="request"):
    """Ask for one short training run of one configuration."""

    protocol: int = PROTOCOL
    target: str  # a file, a module, or module:attribute, relative to the working folder
    config: Config
    device: str
    device_uuid: str | None = None  # of the card to watch meanwhile: an index means another card to another library
    number: int = 0
    purpose: Purpose = "search"
    budget: ProbeBudget = ProbeBudget()
    seed: int = 0
    world_size: int = 1
    memory_limit_bytes: int | None = None


class StabilityRequest(Record, frozen=True, kw_only=True, tag="stability", tag_field="request"):
    """Ask for paired training runs: does `candidate` learn what `reference` learns, step by step.

    Both have the same batch and differ only in knobs that change arithmetic. For every seed three runs start from the
    same weights and see the same batches in the same order: reference, reference with weights perturbed by 1e-6, and
    candidate.
    """

    protocol: int = PROTOCOL
    target: str
    reference: Config
    candidate: Config
    device: str
    seeds: tuple[int, ...] = (0,)
    steps: int = 50  # optimizer steps of each run; 40 to 60 resolve what seeds would hide (measurement note F)
    max_seconds: float = 60.0  # of training, all runs together; what it cuts short is told by the number of losses
    budget: ProbeBudget = ProbeBudget()
    memory_limit_bytes: int | None = None


class InspectRequest(Record, frozen=True, kw_only=True, tag="inspect", tag_field="request"):
    """Ask what the device and the target are. Without a target, only the device is looked at."""

    protocol: int = PROTOCOL
    target: str | None = None
    device: str | None = None  # None: the accelerator if there is one, else the CPU
    config: Config | None = None  # the configuration of the one real step; None: the target's baseline
    seed: int = 0
    memory_limit_bytes: int | None = None
    budget: ProbeBudget = ProbeBudget()


Request = ProbeRequest | StabilityRequest | InspectRequest


class StudyRequest(Record, frozen=True, kw_only=True):
    """What a study was asked, and where: its identity. Trials are comparable only under the same request."""

    protocol: int = PROTOCOL
    target: str
    goal: Goal
    environment: Environment
    facts: TargetFacts
    baseline: Config
    baseline_assumed: bool  # nobody declared it: what people run who never thought about it
    domains: dict[str, tuple[Value, ...]]  # knob name -> every value that may be searched
    memory_limit_bytes: int  # feasibility is judged against it
    enforced_limit_bytes: int | None  # what the child makes real; None: nothing
    headroom_bytes: int  # of the limit, kept free
    seed: int = 0
    created_at: str = ""  # UTC, ISO 8601
