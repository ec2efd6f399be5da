"""The request and the result of a shape run (a training step on tensors that have shapes and no contents): peaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.core.records import Config, Value
from autotune.core.requests import Request
from autotune.core.results import Result
from autotune.memory.model import Arm

SHAPE_RUN_MICRO_BATCHES = 2  # at most, of a step: the gradients of the first are held while the second is computed


class ShapeRun(Result, frozen=True, kw_only=True):
    """The result of a `ShapeRunRequest`: arms, each of which may have failed independently."""

    arms: tuple[Arm, ...] = ()
    base_bytes: int = 0  # that a process of this target holds in addition to the tensors of training

    def arm(self, values: Mapping[str, Value]) -> Arm | None:
        """Return the arm of a configuration with `values`; None if the shape run was not asked for it."""
        return next((arm for arm in self.arms if arm.values.items() <= values.items()), None)

    def peak_bytes(self, values: Mapping[str, Value]) -> float | None:
        """Return the bytes of tensors at their peak in that configuration; None if they are unknown."""
        arm = self.arm(values)
        return None if arm is None else arm.peak_bytes(int(values["batch_size"] or 1))


class ShapeRunRequest(Request[ShapeRun], frozen=True, kw_only=True, tag="dry-run", tag_field="request"):
    """Asks how much memory training would need, by training with tensors that have shapes and no contents.

    On disk it has its earlier name, "dry run": in the tag and in the folder.
    """

    FOLDER: ClassVar[str] = "dry_run"

    target: str
    config: Config  # values of the knobs that `arms` and `batches` leave out
    arms: tuple[dict[str, Value], ...]  # values of the knobs that affect memory, except the micro-batch
    batches: tuple[int, ...]  # micro-batches that may be run, ascending
    device: str
    micro_batches: int = 1  # per optimizer step: 2 where gradients are held while the next micro-batch is computed
    shapes_vary: bool = False  # a probe saw batches of different shapes; then the longest samples are looked for
    by_category: bool = False  # also count the tensors of one step by category, at the batch of `config`
    limit_bytes: int | None = None  # beyond which no peak is of interest
    spares_trades: bool = False  # leave out arms that trade time for memory where no batch needs it
    max_seconds: float = 60.0  # arms that are not begun by then are left out
    seed: int = 0
