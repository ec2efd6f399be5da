"""The records that are known before a probe: configuration, goal, environment, target, request of a study.

Every record is frozen, units are in the names (`_seconds`, `_bytes`, `_fraction` in 0..1), and constructing one has no
side effects. `requests.py` and `results.py` have those of probes, `records.py` of each feature its own.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import msgspec

PROTOCOL_VERSION = 1  # raised when a stored or sent record changes its meaning; an older reader then refuses it
Value = int | float | bool | str | None
# reference: the baseline again, for drift; ablation: the winner without some changes; elsewhere: on a second machine
Purpose = Literal["baseline", "search", "reference", "confirm", "ablation", "elsewhere"]
SEARCH_PURPOSES: tuple[Purpose, ...] = ("baseline", "search", "ablation")  # whose probes a search learns from
BatchLayout = Literal["pair", "tensor", "tuple", "dict", "other"]  # pair: two tensors; other: cannot be looked into
OwnFramework = Literal["torch", "lightning", "hf"]  # as `autotune export --to` has them
Stability = Literal["off", "quick", "full"]  # quick: one paired seed; full: three
Count = Annotated[int, msgspec.Meta(ge=1, description="at least 1")]
Share = Annotated[float, msgspec.Meta(ge=0, lt=1, description="in [0, 1)")]


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all records: immutable, keyword-only, strict when decoded."""

    FORMER: ClassVar[frozenset[str]] = frozenset()  # fields that earlier versions wrote, left out when decoded

    @classmethod
    def upgraded(cls, content: Any) -> Any:
        """Return the content that an earlier version wrote for this record, as this version would have written it."""
        if not isinstance(content, dict):
            return content
        return {name: value for name, value in content.items() if name not in cls.FORMER}


class Config(Record, frozen=True, kw_only=True, dict=True):
    """One point of the search space: a value for every knob, by knob name."""

    values: dict[str, Value]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # a search looks a configuration up thousands of times
        return hash(frozenset(self.values.items()))

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    @property
    def batch_size(self) -> int:
        """The micro-batch: samples in one forward pass on one device."""
        return int(self.values["batch_size"] or 0)

    @property
    def gradient_accumulation_steps(self) -> int:
        """The number of micro-batches per optimizer step."""
        return int(self.values["gradient_accumulation_steps"] or 0)

    def global_batch_size(self) -> int:
        """Return samples per optimizer step of one process; `StudyRequest.global_batch_size` counts all ranks."""
        return self.batch_size * self.gradient_accumulation_steps


class Limit(Record, frozen=True, kw_only=True):
    """The values that the user allows a knob: explicit `values`, or an inclusive range `low`..`high`."""

    low: int | None = None
    high: int | None = None
    values: tuple[Value, ...] | None = None


# Fields of `Goal` in earlier versions: the objective that each belongs to, and its option.
FORMER_OPTIONS = {"within_fraction": ("memory", "within"), "price_per_hour": ("cost", "price")}


class Goal(Record, frozen=True, kw_only=True):
    """The goal of a search, with the bounds that it keeps.

    Part of a study's identity. Its numbers are checked when it is decoded, and by `Settings` before it is made.
    """

    FORMER: ClassVar[frozenset[str]] = frozenset({"noise_scale", *FORMER_OPTIONS})

    objective: str = "throughput"
    objective_options: dict[str, Value] = {}  # of that objective: all of its own, by name
    exact: bool = False  # only knobs that keep the arithmetic, up to rounding, may change; the global batch is held
    global_batch: Count | None = None  # samples per optimizer step, held; None: free
    memory_limit_bytes: int | None = None  # None: all of the device's memory
    headroom_fraction: Share | None = None  # of the limit, kept free; None: max(5 %, 512 MiB), 10 % if shapes vary
    stability: Stability = "quick"
    loss_tolerance: Share = 0.02  # of the full-precision loss decrease, at most (docs/notes/precision.md 3)
    run_length: str | None = None  # of the planned training: "12h", "30epochs"; None: not given
    limits: dict[str, Limit] = {}  # knob name -> the values that may be searched
    tune: tuple[str, ...] | None = None  # only these knobs move, the others stay at the baseline's value; None: all

    @classmethod
    def upgraded(cls, content: Any) -> Any:
        """Return `content` with the options of objectives in their present place."""
        if not isinstance(known := super().upgraded(content), dict):
            return known
        options = {
            option: content[field] for field, (objective, option) in FORMER_OPTIONS.items()
            if content.get("objective") == objective and field in content
        }  # fmt: skip
        return {"objective_options": options, **known}


class Environment(Record, frozen=True, kw_only=True):
    """The environment of probes: the hardware and the versions that a measurement depends on."""

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
    default_threads: int | None = None  # number of CPU threads that torch uses by default; None: unknown
    omp_wait_policy: str | None = None  # OMP_WAIT_POLICY, as the user had set it
    mallocs: tuple[str, ...] = ()  # values of the knob `malloc` that processes here can have
    variables: tuple[str, ...] = ()  # environment variables of allocators that the user had set
    nccl: tuple[str, ...] = ()  # `NAME=value` of the variables of NCCL that the user had set, of several ranks on GPUs
    no_compiler: str | None = None  # what torch.compile lacks; "": nothing; None: an earlier version did not look

    @property
    def device_kind(self) -> str:
        """The kind of device: `cpu`, `cuda`, `mps` or `xpu`."""
        return self.device.partition(":")[0]


class CheckLine(Record, frozen=True, kw_only=True):
    """One line of `autotune check`: a part of the target, and whether it was written or inferred."""

    name: str
    text: str
    inferred: bool = False
    override: str = ""  # the line that would replace an inference
    needs_attention: bool = False  # the user should look at it, as at an inference


class Declaration(Record, frozen=True, kw_only=True):
    """One knob that the user declared; functions or a placeholder take its value by name."""

    name: str
    values: tuple[Value, ...]  # as listed
    default: Value = None  # in the baseline, unless that sets another: the function's own default, or the first value
    changes_arithmetic: bool | None = None  # None: unknown, so its losses are compared as if it did
    memory: Literal["grows", "changes", "none"] = "changes"  # grows: with its order
    ordered: bool = False  # searched by position: numbers by size, others as listed
    takers: tuple[str, ...] = ()  # functions of the target that take it


class StepFacts(Record, frozen=True, kw_only=True):
    """The facts that one real optimizer step of the target showed."""

    loss: float | None  # None: not finite
    seconds: float | None  # None: graphs were compiled in it, as they are not in later steps
    parameters_with_gradient: int
    trainable_parameters: int  # tensors, not elements


class DriftingParameter(Record, frozen=True, kw_only=True):
    """A parameter or buffer of which ranks of a command had different values after each step that was looked at."""

    name: str  # in the outermost module that has it
    ranks: tuple[int, ...]  # whose values are not those of rank 0
    cause: Literal["outside", "bare", "unwrapped", "no group", "past the wrapper", "no_sync", "unknown"]
    place: str = ""  # `train.py:12`, of the optimizer, the wrapper or the forward pass that belongs to the cause
    meant: Literal["", "exchanged", "others exchanged", "part of a model", "buffer"] = ""  # why it may differ


class RankFacts(Record, frozen=True, kw_only=True):
    """The facts of one rank of a command, which are compared with those of the other ranks."""

    looks: int = 0  # optimizer steps after which ranks were compared; 0: they need not be equal
    looks_ended_early: bool = False  # too few looks to tell local SGD from ranks that drift
    drifting: tuple[DriftingParameter, ...] = ()  # that were never equal
    averaged: dict[str, int] = {}  # parameters that differed first: the look at which they were equal
    epoch_batches: int = 0  # of its loader in one epoch; 0: unknown
    loader_place: str = ""  # the line that made it, `train.py:12`
    loader_batch: int = 0  # samples of its batches, as it was made; 0: unknown, as of batches that vary
    first_batch: int = 0  # checksum of the first; 0: unknown, or ranks may have the same, as in a pipeline
    has_trainer: bool = False  # it has loaded the Trainer of transformers, which wraps the model itself
    joins: bool = False  # it trains under torch's `Join`, where epochs may have different lengths
    needless_searches: tuple[str, ...] = ()  # lines with find_unused_parameters=True where nothing was unused
    early_exchanges: tuple[str, ...] = ()  # lines of forward passes that made micro-batches exchange too early


class OptimizerFacts(Record, frozen=True, kw_only=True):
    """Facts about the optimizers that stepped first: how torch can compute their update."""

    names: tuple[str, ...]  # their classes
    usual: str  # the implementation that torch chooses here by default
    possible: tuple[str, ...]  # implementations available on the device of their parameters
    step_share: float | None  # of the first step's time, in which their state is also made; None: it is not known


class TargetFacts(Record, frozen=True, kw_only=True):
    """The facts that a child process found about the target; the parent knows nothing else of user code."""

    name: str  # the model's class
    parameter_count: int
    has_convolution: bool
    has_batch_norm: bool
    data: Literal["dataset", "iterable", "dataloader", "batch"]
    dataset_samples: int | None  # None: unknown (iterable) or synthetic
    has_data_parallel: bool = False  # torch.nn.DataParallel around the model
    baseline: dict[str, Value] | None = None
    space: dict[str, Limit] = {}
    global_batch_size: int | None = None
    is_mean_loss: bool | None = None  # its loss is a mean over samples, as far as one batch shows; None: unknown
    has_validation: bool = False
    takes_workers: bool = True  # False: its own `dataloader()` has no argument num_workers
    loader_options: tuple[str, ...] | None = None  # of a DataLoader that its own `dataloader()` takes; None: all
    repeats_samples: bool = False  # each loader worker gives all samples of its stream, not only a share
    has_collate: bool = False  # it joins samples by a function of its own
    has_sampler: bool = False  # it orders samples by a sampler of its own
    batch_layout: BatchLayout | None = None  # None: an earlier version did not note it
    checkpointable_blocks: int = 0  # parts of the model that could be computed again in the backward pass
    owns_loop: bool = False  # it trains by a loop of its own, which is only observed
    is_program: bool = False  # a command, whose program makes its loader itself
    settable: tuple[str, ...] | None = None  # of a command: the knobs that it takes or that are set outside; None: all
    written: tuple[str, ...] = ()  # those of them that are set in the TrainingArguments that the script itself writes
    framework: OwnFramework = "torch"  # whose arguments the user's own object takes
    ranks: int = 1  # processes that train together, each with a micro-batch of its own
    of_rank: RankFacts | None = None  # of a command's rank, until they are compared
    finds_unused_parameters: bool | None = None  # it says that ranks look for them; None: an earlier version
    ranks_differ: tuple[str, ...] = ()  # parameters and buffers with other values on each rank, which may be meant
    exposed_communication: float | None = None  # share of a micro-step that is an exchange of gradients alone, 0..1
    optimizer: OptimizerFacts | None = None  # None: an earlier version did not look, or none was seen to step
    attention: dict[str, tuple[str, ...]] = {}  # dtype -> kernels that take every call of it, besides torch's own
    calls_attention: bool | None = None  # its step called it; None: an earlier version did not look
    compiles_itself: bool = False  # its own code has graphs compiled, whatever knobs say
    compiles_model: bool = False  # its model, or a part of it, is compiled before any knob changes it
    is_deterministic: bool = False  # its code asks for deterministic algorithms
    found: dict[str, Value] = {}  # knob name -> the value that the user's code sets, if it is not the default
    update: tuple[str, ...] = ()  # agreed names that the file has for the end of a step: clip_grad_norm, step, ...
    declared: tuple[Declaration, ...] = ()  # knobs of the user's own
    check_lines: tuple[CheckLine, ...] = msgspec.field(default=(), name="findings")
    step: StepFacts | None = None

    @property
    def samples_of_a_rank(self) -> int | None:
        """The number of the dataset's samples that each rank has; None: unknown."""
        return None if self.dataset_samples is None else max(1, self.dataset_samples // self.ranks)

    @property
    def tunes_loader(self) -> bool:
        """Whether there is a loader to tune: not if batches are synthetic."""
        return self.data != "batch"

    @property
    def tunes_workers(self) -> bool:
        """Whether the number of loader workers can be chosen."""
        return self.tunes_loader and self.takes_workers

    def takes_option(self, name: str) -> bool:
        """Return whether its loader takes that option of a DataLoader."""
        return self.loader_options is None or name in self.loader_options


class StudyRequest(Record, frozen=True, kw_only=True):
    """The request of a study, with its machine and target: its identity. Only trials of one request are comparable."""

    protocol: int = PROTOCOL_VERSION
    target: str
    goal: Goal
    environment: Environment
    facts: TargetFacts
    baseline: Config
    baseline_assumed: bool  # not declared by the user: a usual default
    domains: dict[str, tuple[Value, ...]]  # knob name -> every value that may be searched
    memory_limit_bytes: int  # feasibility is judged against it
    enforced_limit_bytes: int | None  # limit that the child process enforces; None: none
    headroom_bytes: int  # of the limit, kept free
    seed: int = 0
    created_at: str = ""  # UTC, ISO 8601
    target_digest: str = ""  # of the target's file and imports; empty: installed code, or an earlier version

    def global_batch_size(self, config: Config) -> int:
        """Return the samples per optimizer step of all ranks together."""
        return config.global_batch_size() * self.facts.ranks

    @property
    def limits(self) -> dict[str, Limit]:
        """The limit of each knob that the user, or else the target, limits, by knob name."""
        return {**self.facts.space, **self.goal.limits}
