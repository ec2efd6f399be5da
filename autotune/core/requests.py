"""The requests to a process of its own: one record for each kind of measurement. `core/measurements.py` lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar, cast, get_args

from msgspec.structs import replace

from autotune.core.records import PROTOCOL_VERSION, Config, Declaration, Purpose, Record, StudyRequest
from autotune.core.results import Failure, Inspection, Outcome, ProbeResult, Result

Asked = TypeVar("Asked", bound="Request[Any]")
ResultT = TypeVar("ResultT", bound=Result)

FEWEST_PROBE_STEPS = 7  # of a probe whose steps are long: warm-up 2, computing alone, settling, window 2, worst case
FEWEST_STEPS_IN_TURN = 4  # the same if computing and loading are not timed alone: warm-up 2, window 2
MEASURED_STEPS = 2  # of these in the window, however long they are
# Times the shortest window: after that fewer steps than usual suffice, if their spread is small enough.
LONG_WINDOW_RATIO = 2.0
EPOCH_PATIENCE = 3.0  # times the longest window, for whole epochs of the workers


class ProbeBudget(Record, frozen=True, kw_only=True):
    """The time that one probe may take. The deadlines are seconds without progress, per phase."""

    min_warmup_steps: int = 3  # optimizer steps; in addition, at least two must succeed
    min_warmup_seconds: float = 0.5
    max_compute_seconds: float = 0.5  # computing alone, on one batch again and again
    max_loader_seconds: float = 1.0  # loading alone, after dropping the batches that workers held ready
    min_steps: int = 8
    max_steps: int = 2000
    min_seconds: float = 1.5
    fewest_steps: int = MEASURED_STEPS  # in any case; more than these only within twice the longest window
    max_seconds: float = 4.0  # more rounds help against interference, longer windows do not (docs/notes/timing.md 2)
    target_precision: float = 0.03  # relative half width of the 95 % interval by batch means
    rough_precision: float = 0.05  # the same, enough where that interval does not include the incumbent
    start_deadline_seconds: float = 120.0
    load_deadline_seconds: float = 300.0
    build_deadline_seconds: float = 600.0
    first_step_deadline_seconds: float = 600.0  # a first step may compile, and a first batch fill a shuffle buffer
    step_deadline_seconds: float = 180.0  # warm-up, measuring and validation: between two micro-batches after that
    total_deadline_seconds: float = 1800.0


def patient(budget: ProbeBudget, seconds: float) -> ProbeBudget:
    """Return `budget` with `seconds` until a silent micro-batch counts as hung, and time for a probe of such steps."""
    return replace(
        budget,
        first_step_deadline_seconds=seconds,
        step_deadline_seconds=seconds,
        # One step more, because the second of the warm-up may still set something up.
        total_deadline_seconds=max(budget.total_deadline_seconds, (FEWEST_PROBE_STEPS + 1) * seconds),
    )


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[Asked, ResultT]):
    """One kind of measurement: its request, its result, and their folder in a study."""

    request: type[Asked]
    result: type[ResultT]
    folder: str


class Request(Record, Generic[ResultT], frozen=True, kw_only=True):
    """The base of all requests. `class ProbeRequest(Request[ProbeResult])` names the result."""

    FOLDER: ClassVar[str]

    protocol: int = PROTOCOL_VERSION
    target: str | None = None  # a file, a module, or module:attribute, relative to the working folder; None: no target
    device: str | None = None  # None: the accelerator if there is one, else the CPU
    budget: ProbeBudget = ProbeBudget()
    memory_limit_bytes: int | None = None  # that the process keeps to; None: all there is
    settable: tuple[str, ...] | None = None  # the knobs that an inspection found can be set (`TargetFacts`); None: all
    ranks: int = 1  # processes that train together; those of a command are started by its own launcher

    @classmethod
    def kind(cls) -> Kind[Self, ResultT]:
        """The request with its result, for functions that work with any kind."""
        (result,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]  # typeshed has it for no class
        return Kind(request=cls, result=cast("type[ResultT]", result), folder=cls.FOLDER)

    def failed(self, outcome: Outcome, failure: Failure) -> ResultT:
        """Return the result of a failed measurement, with the reason."""
        return self.kind().result(outcome=outcome, failure=failure)

    def process_config(self) -> Config:
        """Return the configuration whose environment variables the process has from its start on."""
        config: Config | None = getattr(self, "config", None)
        return config or Config(values={})


def of_study(study: StudyRequest) -> dict[str, Any]:
    """Return the fields that are the same in every request of a search: those that the study decides."""
    return {
        "target": study.target,
        "device": study.environment.device,
        "memory_limit_bytes": study.enforced_limit_bytes,
        "settable": study.facts.settable,
        "ranks": study.facts.ranks,
    }


class ProbeRequest(Request[ProbeResult], frozen=True, kw_only=True, tag="probe", tag_field="request"):
    """Asks for one short training run of one configuration."""

    FOLDER: ClassVar[str] = "probes"
    FORMER: ClassVar[frozenset[str]] = frozenset({"world_size"})

    target: str
    config: Config
    device: str
    device_uuid: str | None = None  # of the GPU to watch meanwhile: an index means another GPU to another library
    number: int = 0
    purpose: Purpose = "search"
    repeats: int | None = None  # the probe with interference that this one repeats; None: a first one
    seed: int = 0
    short_cycles: bool = False  # accumulation may be measured in cycles of two micro-batches (decisions/0046)
    incumbent_samples_per_second: float | None = None  # to be beaten, else cut short; None: measured for its own sake
    # In which a repeat in a fresh process has to end, from the probe's start; None: it may take as long as it does.
    repeat_within_seconds: float | None = None

    @classmethod
    def upgraded(cls, content: Any) -> Any:
        """Read the purpose `worth` of earlier versions as `ablation`."""
        content = super().upgraded(content)
        if isinstance(content, dict) and content.get("purpose") == "worth":
            return content | {"purpose": "ablation"}
        return content


class InspectRequest(Request[Inspection], frozen=True, kw_only=True, tag="inspect", tag_field="request"):
    """Asks for facts of the device and of the target. Without a target, only the device is inspected."""

    FOLDER: ClassVar[str] = "inspect"

    config: Config | None = None  # the configuration of the one real step; None: the target's baseline
    declared: tuple[Declaration, ...] = ()  # knobs that the user declares besides the target's `space`
    lasts: bool = False  # a command must also train for as long as a probe needs at least; else one step is enough
    seed: int = 0
