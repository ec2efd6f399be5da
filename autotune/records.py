"""What is asked and what is known before a probe: configuration, goal, environment, target, request.

Every record is frozen, units are in the names (`_seconds`, `_bytes`, `_fraction` in 0..1), and constructing one
touches nothing outside it. `results.py` holds what comes back, `codec.py` the one JSON form of both.
"""

from __future__ import annotations

from typing import Literal

import msgspec

PROTOCOL = 1  # raised when a stored or sent record changes its meaning; an older reader then refuses it
Value = int | float | bool | str | None
# reference: the baseline again, to see drift; worth: a step between baseline and recommendation, after the answer
Purpose = Literal["baseline", "search", "reference", "confirm", "worth"]
Stability = Literal["off", "quick", "full"]  # quick: one paired seed; full: three
ObjectiveName = Literal["throughput", "memory", "energy", "cost", "time-to-quality"]


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

    objective: ObjectiveName = "throughput"
    within_fraction: float = 0.05  # of the fastest: by so much less speed `memory` may be bought
    price_per_hour: float | None = None  # of this machine, in any currency: what `cost` counts with
    exact: bool = False  # only what keeps the arithmetic may move, up to rounding; the global batch is held
    noise_scale: float | None = None  # of the gradient, in samples, once `time-to-quality` has had it measured
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
        if not 0 <= self.within_fraction < 1:
            raise ValueError(f"within must be in [0, 1), got {self.within_fraction}")
        if self.price_per_hour is not None and not 0 < self.price_per_hour < float("inf"):
            raise ValueError(f"the price per hour must be above 0, got {self.price_per_hour}")


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
    rough_precision: float = 0.05  # the same, enough where that interval does not include the incumbent
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
    incumbent_samples_per_second: float | None = None  # to be beaten, else cut short; None: measured for its own sake


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


class NoiseScaleRequest(Record, frozen=True, kw_only=True, tag="noise-scale", tag_field="request"):
    """Ask for the gradients of many micro-batches at the same weights, as soon as training has really begun.

    At initialisation they say nothing of training: what they lead to was wrong by 0.03 to 7 times there, within 3.4
    times after 30 steps (theory note 3.3). So training goes on to where the loss has fallen, and not for ever.
    """

    protocol: int = PROTOCOL
    target: str
    config: Config  # without accumulation: each optimizer step is one micro-batch
    device: str
    seed: int = 0
    least_steps: int = 30  # optimizer steps before the loss is looked at, however long they take
    most_steps: int = 100  # and after which it is done whether the loss has fallen or not
    least_fall: float = 0.1  # of the first losses; 10 to 30 % is where training has begun (theory note 3.3)
    micro_batches: int = 64  # with 16 the interval is often open at its upper end (theory note 3.2)
    max_seconds: float = 60.0  # of training and measuring; what it cuts short is told by the number of gradients
    budget: ProbeBudget = ProbeBudget()
    memory_limit_bytes: int | None = None


class BranchesRequest(Record, frozen=True, kw_only=True, tag="branches", tag_field="request"):
    """Ask for one training from whose end on several go on, each with another global batch, over as many samples."""

    protocol: int = PROTOCOL
    target: str
    config: Config  # of the training before they part
    steps: int  # optimizer steps of it
    branches: tuple[Config, ...]  # the first runs at the learning rate that the target has; in this order
    phi: float  # the noise scale, samples: the learning rates of the others follow from it
    device: str
    seed: int = 0
    max_samples: int = 200_000  # of each branch
    max_seconds: float = 300.0  # of everything; what it cuts short is told by the number of losses
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


class DryRunRequest(Record, frozen=True, kw_only=True, tag="dry-run", tag_field="request"):
    """Ask what memory training would need, by training with tensors that have shapes and no contents."""

    protocol: int = PROTOCOL
    target: str
    config: Config  # what `arms` and `batches` do not say
    arms: tuple[dict[str, Value], ...]  # values of the knobs that move memory, apart from the micro-batch
    batches: tuple[int, ...]  # micro-batches that may be run, ascending
    device: str
    micro_batches: int = 1  # per optimizer step: 2 where gradients live while the next micro-batch is computed
    shapes_vary: bool = False  # as far as a probe saw; the longest samples are looked for then
    limit_bytes: int | None = None  # beyond which no peak is of interest
    max_seconds: float = 60.0  # arms that are not begun by then are left out
    seed: int = 0
    budget: ProbeBudget = ProbeBudget()
    memory_limit_bytes: int | None = None


Request = ProbeRequest | StabilityRequest | NoiseScaleRequest | BranchesRequest | InspectRequest | DryRunRequest


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
