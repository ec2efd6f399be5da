"""Makes the request of a shape run, with the settings that all shape runs share."""

from __future__ import annotations

from autotune.core.records import Config, Value
from autotune.core.requests import ProbeBudget
from autotune.knobs import KNOBS
from autotune.memory.records import SHAPE_RUN_MICRO_BATCHES, ShapeRunRequest

SHAPE_RUN_STARTING_SECONDS = 60.0  # that importing and loading may take in addition, before the process is ended


def shape_run_request(
    target: str, config: Config, device: str, *, arms: tuple[dict[str, Value], ...], batches: tuple[int, ...],
    accumulation: int, seconds: float, seed: int,
) -> ShapeRunRequest:  # fmt: skip
    """Return the request for `arms` and micro-batches of a configuration, as far as `seconds` go.

    The process is ended at twice that time. `accumulation` is the most micro-batches of an optimizer step. Nothing is
    compiled, because tensors without contents cannot show the effect of compiling.
    """
    return ShapeRunRequest(
        target=target,
        config=Config(values=config.values | {one.name: one.default for one in KNOBS if one.compiles}),
        arms=arms,
        batches=batches,
        device=device,
        micro_batches=min(SHAPE_RUN_MICRO_BATCHES, accumulation),
        max_seconds=seconds,
        seed=seed,
        budget=ProbeBudget(total_deadline_seconds=2 * seconds + SHAPE_RUN_STARTING_SECONDS),
    )
