"""The request and the result of a precision check: paired training runs that differ in their arithmetic alone."""

from __future__ import annotations

from typing import ClassVar, Literal

from autotune.core.records import Config, Record
from autotune.core.requests import Request
from autotune.core.results import Result

Role = Literal["reference", "perturbed", "candidate"]
ROLES: tuple[Role, ...] = ("reference", "perturbed", "candidate")


class LossRun(Record, frozen=True, kw_only=True):
    """One of the paired runs of a precision check; entries are per optimizer step, None where not finite."""

    role: Role
    seed: int
    losses: tuple[float | None, ...]
    gradient_norms: tuple[float | None, ...] = ()  # unscaled
    zero_gradient_shares: tuple[float, ...] = ()  # of all gradient entries, exactly zero
    skipped_steps: tuple[int, ...] = ()  # indices of the steps that the gradient scaler skipped
    loss_scale: float | None = None  # at the end; None: no gradient scaler


class PrecisionCheckResult(Result, frozen=True, kw_only=True):
    """The result of a `PrecisionCheckRequest`: the runs that were finished."""

    runs: tuple[LossRun, ...] = ()


class PrecisionCheckRequest(
    Request[PrecisionCheckResult], frozen=True, kw_only=True, tag="stability", tag_field="request"
):
    """Asks for paired training runs: does `candidate` learn what `reference` learns, step by step.

    Both have the same batch and differ only in knobs that change arithmetic. For every seed three runs start from the
    same weights and see the same batches in the same order: reference, reference with weights perturbed by 1e-6, and
    candidate. A command runs once in a process: it is asked for one role at a time.
    """

    FOLDER: ClassVar[str] = "stability"

    target: str
    reference: Config
    candidate: Config
    device: str
    seeds: tuple[int, ...] = (0,)
    steps: int = 50  # optimizer steps of each run; 40 to 60 resolve what seeds would hide (docs/notes/precision.md 2)
    roles: tuple[Role, ...] = ROLES
    max_seconds: float = 60.0  # of training, all runs together; the number of losses shows which runs it cut short

    def process_config(self) -> Config:
        """The candidate's configuration, which sets the environment of the process."""
        return self.candidate
