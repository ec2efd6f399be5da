"""The request and the result of a shape run (a training step on tensors that have shapes and no contents): peaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.core.records import Config, Value
from autotune.core.requests import Request
from autotune.core.results import Result
from autotune.memory.model import Arm

SHAPE_RUN_MICRO_BATCHES = 2  # at most, of a step: gradients of the first live while the second is computed


class ShapeRun(Result, frozen=True, kw_only=True):
    """The result of a `ShapeRunRequest`: arms, of which each may have failed for itself."""

    arms: tuple[Arm, ...] = ()
    base_bytes: int = 0  # that a process of this target holds besides the tensors of training

    def arm(self, values: Mapping[str, Value]) -> Arm | None:
        """Return the arm of a configuration with `values`; None if the shape run was not asked for it."""
        return next((arm for arm in self.arms if arm.values.items() <= values.items()), None)

    def peak_bytes(self, values: Mapping[str, Value]) -> float | None:
        """Return the bytes of tensors at their peak in that configuration; None if they are unknown."""
        arm = self.arm(values)
        return None if arm is None else arm.peak_bytes(int(values["batch_size"] or 1))


class ShapeRunRequest(Request[ShapeRun], frozen=True, kw_only=True, tag="dry-run", tag_field="request"):
    """Ask what memory training would need, by training with tensors that have shapes and no contents.

    On disk it has its earlier name, "dry run": in the tag and in the folder.
    """

    FOLDER: ClassVar[str] = "dry_run"

    target: str
    config: Config  # what `arms` and `batches` do not say
    arms: tuple[dict[str, Value], ...]  # values of the knobs that move memory, apart from the micro-batch
    batches: tuple[int, ...]  # micro-batches that may be run, ascending
    device: str
    micro_batches: int = 1  # per optimizer step: 2 where gradients live while the next micro-batch is computed
    shapes_vary: bool = False  # as far as a probe saw; the longest samples are looked for then
    by_category: bool = False  # what the tensors of one step are for, at the batch of `config`
    limit_bytes: int | None = None  # beyond which no peak is of interest
    spares_trades: bool = False  # leave out arms that trade time for memory where no batch needs it
    max_seconds: float = 60.0  # arms that are not begun by then are left out
    seed: int = 0
