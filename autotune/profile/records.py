"""The readings of one profiled configuration: seconds by part of a step and by module, and lines that cost time.

Raw values per optimizer step are kept; `profile/judge.py` makes shares, bounds and sentences of them.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

from msgspec import field

from autotune.core.interference_readings import HostInterference
from autotune.core.records import Config, Record
from autotune.core.requests import Request
from autotune.core.results import Result
from autotune.profile.memory_records import MemoryUse
from autotune.profile.storage_records import StorageUse

# communication: waiting for other ranks that is not hidden behind the backward pass
Part = Literal["data", "copy", "forward", "backward", "communication", "optimizer", "other"]
PARTS: tuple[Part, ...] = ("data", "copy", "forward", "backward", "communication", "optimizer", "other")
NO_LINE = "no line of yours"  # for a cost without a line
REPLAYED_STEPS = 4  # of `--verify`, repeated: the effect of a step is visible in the losses of the next

Slowness = Literal[
    "host read",  # .item(), .tolist(), .cpu(), float(tensor): the host waits, and copies
    "host tensor",  # torch.tensor(...) of Python numbers or an array, in every step
    "collector",  # gc.collect()
    "full collection",  # of Python's own, which the training's objects bring about
    "cache",  # torch.cuda.empty_cache(), torch.cuda.synchronize()
    "pinning",  # pin_memory() in every step
    "saving",  # torch.save
    "printing",  # print(), a tensor as text
    "copying",  # copy.deepcopy
    "evaluating",  # the model that trains is called without gradients
    "teacher",  # a model that no optimizer trains is called without gradients
    "metric",  # a metric of torchmetrics computes its value
    "hook",  # a hook of the user's on a module or on gradients
    "zeroing",  # zero_grad(set_to_none=False)
    "untrained",  # gradients for parameters that no optimizer steps
    "unused",  # gradients for the parameters of another optimizer, which forgets them
    "collective",  # torch.distributed.all_reduce() and the like, called by the user
    "early exchange",  # of gradients to which more are added before the optimizer steps
    "graph search",  # find_unused_parameters, and every parameter gets a gradient
    "switch",  # anomaly detection or deterministic algorithms are on
    "graph",  # a backward pass goes through the graphs of the steps before
    "growing",  # an operation works on more with every step
    "growth",  # memory that grows with every step
    "float64",  # the model computes in double precision
    "loop",  # the same small operation many times from one line
    "clone",  # clone() of what nobody changes
    "casting",  # from one floating dtype to another, and back
    "sizes",  # a matrix product takes longer than one with a slightly larger weight
    "python",  # the user's own Python, outside of torch's operations
    "waiting",  # the same, where it waits and does not compute
    "loading",  # the user's own code for samples and batches, which the step waits for
    "rereading",  # the same, where it reads one file again and again
    "joining",  # the same, where it copies arrays or tensors into new ones
    "one by one",  # samples that a DataLoader joins, where one indexing gives the same batch
    "order",  # a slow sample holds up batches of other workers that are ready
    "tail",  # few samples of the dataset that take many times as long as the others
]


class PartSeconds(Record, frozen=True, kw_only=True):
    """The seconds of one part of an optimizer step, on average: all parts together are the step."""

    part: Part
    seconds: float


class ModuleSeconds(Record, frozen=True, kw_only=True):
    """The seconds of one module in an optimizer step, without those of the modules in it."""

    name: str  # as `named_modules` has it; empty: the model itself
    kind: str  # its class
    forward: float
    backward: float


class Work(Record, frozen=True, kw_only=True):
    """The floating-point operations of a step, and this machine's peak rate."""

    flops: int | None  # of an optimizer step: matrix products, convolutions and attention; None: cannot be counted
    why: str = ""  # they cannot be counted
    peak_flops: float  # per second, of one large matrix product, measured in the same process
    size: int  # of that product's square matrices
    dtype: str  # of that product: that of most results of products; not counted: that of the largest parameter


class Bounds(Record, frozen=True, kw_only=True):
    """Bounds of a step besides floating-point operations (bytes and calls), and this machine's rates."""

    moved_bytes: int  # per optimizer step, that operations read and write if nothing is in a cache
    bytes_per_second: float  # of one large copy, read and written, measured in the same process
    calls: int  # of operations, per optimizer step
    call_seconds: float  # of one that computes next to nothing


class MeasuredGain(Record, frozen=True, kw_only=True):
    """The measured gain of leaving something out: steps with it and without it, in turn (`--verify`)."""

    seconds: float  # per optimizer step, the median; below zero: steps were longer without it
    low: float  # of its interval
    high: float
    same_losses: bool  # the same steps were taken again without it: losses and weights were the same, bit for bit
    gives_up: str = ""  # what is lost without it, whatever its cost


class SlowLine(Record, frozen=True, kw_only=True):
    """One observed line of the user's code that takes time or memory in every step."""

    kind: Slowness
    place: str  # "model.py:31 in loss"; empty: no line of the user's
    code: str  # that line
    what: str  # ".tolist()", the names of parameters, the container that keeps tensors
    count: float  # per optimizer step
    seconds: float  # per optimizer step: the largest possible gain of leaving it out; 0.0 for memory
    bytes: float = 0.0  # per optimizer step, by which memory grows
    steps_left: int | None = None  # after which memory is used up; None: it does not grow, or unknown
    ratio: float = 0.0  # of the slowest sample to the median
    gain: MeasuredGain | None = None  # None: not verified
    unverified: str = ""  # why it was not verified, if that was asked for


class ProfileResult(Result, frozen=True, kw_only=True):
    """The result of a `ProfileRequest`: OK has parts, unless it comes from a simulated machine."""

    steps: int = 0  # number of optimizer steps over which the parts are averaged
    step_seconds: tuple[float, ...] = ()  # of each of them
    samples: float = 0.0  # per optimizer step
    parts: tuple[PartSeconds, ...] = ()
    rank: int = 0  # number of the rank with these readings: the one that waits least for others
    ranks: tuple[tuple[PartSeconds, ...], ...] = ()  # the parts of each rank, in their order; empty: one process
    modules: tuple[ModuleSeconds, ...] = ()  # empty: not measured
    work: Work | None = None
    bounds: Bounds | None = field(default=None, name="limits")  # None: operations were not counted
    slow_lines: tuple[SlowLine, ...] = field(default=(), name="findings")
    memory: MemoryUse | None = None
    storage: StorageUse | None = None  # None: no sample opens a file, or it was not measured
    interference: HostInterference | None = field(default=None, name="contamination")  # while the parts were timed
    left_out: tuple[str, ...] = ()  # what was not measured, with the reason: one sentence each

    @classmethod
    def upgraded(cls, content: Any) -> Any:
        """Return the content without slow lines of a kind that only a newer version knows."""
        known = super().upgraded(content)
        if not isinstance(known, dict) or not isinstance(lines := known.get("findings"), list):
            return known
        kinds = get_args(Slowness)
        return {**known, "findings": [one for one in lines if isinstance(one, dict) and one.get("kind") in kinds]}

    @property
    def seconds(self) -> float:
        """The mean seconds of one optimizer step."""
        return sum(one.seconds for one in self.parts)


# brief: parts, calls and lines alone; captured: nothing is measured, Nsight Systems watches a few steps; sites: nothing
# is measured, and if memory runs out, the failure has the lines whose tensors took it
ProfileExtent = Literal["whole", "brief", "captured", "storage", "sites"]


class ProfileRequest(Request[ProfileResult], frozen=True, kw_only=True, tag="profile", tag_field="request"):
    """Asks for the parts of one configuration's optimizer steps, and for the user's lines that take time."""

    FOLDER: ClassVar[str] = "profile"

    target: str
    config: Config
    device: str
    seed: int = 0
    seconds: float = 3.0  # of steps that are timed by their parts; each of the other passes takes up to half of it
    extent: ProfileExtent = "whole"
    output: str | None = None  # the folder for traces, or, of storage, for caches of fsspec; None: none are made
    verify: bool = False  # whether slow lines are tried: left out in every second pair of steps
