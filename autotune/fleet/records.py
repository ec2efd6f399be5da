"""The rows of the queue as records: the study that workers join, the workers, and the jobs that they carry out."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from autotune.core.records import Environment, Record
from autotune.core.results import Isolation

WaitSeconds = Annotated[float, Meta(gt=0)]


class Timing(Record, frozen=True, kw_only=True):
    """How long search and workers wait before they act, in seconds; `fence` must be less than `grace`.

    A worker without its lease stops its probe after `fence`, and its job is given to another after `grace`: so no
    job is carried out twice at once. Both may be short, for the server frees the lease of a killed process within
    milliseconds; they must be longer than it takes to reach a restarted server.
    """

    poll: WaitSeconds = 0.3  # between two looks at the queue
    beat: WaitSeconds = 1.0  # between two signs of life of a worker
    fence: WaitSeconds = 10.0  # without a lease, until a worker stops what it runs
    grace: WaitSeconds = 12.0  # for which a lease is free, until the job is given to another worker
    restarted: WaitSeconds = 15.0  # after a start of the server, in which nobody is taken for lost
    # With a server that cannot be reached, with a fleet without a worker, and with a search that nobody runs: long
    # enough to start what stopped once more, short enough that a scheduler soon has its GPUs back.
    patience: WaitSeconds = 600.0
    # For a search that has not begun: an hour to start it by hand, or to wait for its turn in a queue of jobs; then the
    # scheduler has its GPUs back, which a mistyped name would keep until the end of the job.
    unbegun: WaitSeconds = 3600.0
    gathering: WaitSeconds = 120.0  # for the workers that are expected


class QueuedStudy(Record, frozen=True, kw_only=True):
    """The study as workers see it: what is trained, and on which class of machines. Holds no code."""

    name: str
    target: str
    target_digest: str  # of the target's file and its imports; empty: installed code
    isolation: Isolation = "fork"  # of its probes
    ranks: int = 1  # processes that train together; those of a command are started by its own launcher
    environment: Environment | None = None  # the class; None: the first inspection tells it
    has_ended: bool = False
    is_running: bool = True  # a search holds it: else that was interrupted or killed, unless it has ended


class FleetWorker(Record, frozen=True, kw_only=True):
    """One worker of a study."""

    id: int
    name: str
    host: str
    environment: Environment
    quarantined: str = ""  # why it gets no more probes
    reference: float | None = None  # score of the baseline there, by its latest probe
    job: str = ""  # the place in the study of what it runs now; empty: it waits
    seconds: float = 0.0  # since it began that
    has_left: bool = False  # or was lost


class Job(Record, frozen=True, kw_only=True):
    """One request in the queue, as its worker takes it."""

    id: int
    place: str  # in the study, such as probes/0007
    request: str  # JSON


class JobEnd(Record, frozen=True, kw_only=True):
    """The end of a job: what its worker sent back."""

    result: str  # JSON
    log: bytes
    worker: str  # its name
    taken_at: str  # by the clock of the database, UTC, ISO 8601


class RayOrder(Record, frozen=True, kw_only=True):
    """What the search asks the process that holds its connection to a Ray cluster."""

    address: str  # of the cluster, as `ray.init` takes it
    workers: int  # that are expected
    storage: str  # address of the database, which may hold a password: it goes over pipes, never on a command line
    study: str
    target: str
    device: str | None  # that the search was told to measure
    gpus: int = 1  # that train together in each worker, if it measures GPUs
    folder: str  # in which the search runs; a relative target is found there


class RayNews(Record, frozen=True, kw_only=True):
    """What that process says: it `placed` workers, a `note`, why it `refused`, or that none is left: `over`."""

    kind: Literal["placed", "note", "refused", "over"]
    text: str = ""
    workers: int = 0
