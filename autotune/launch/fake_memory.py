"""What the fake launcher's dry run foretells: the truth of its machine, short of what an allocator adds."""

from __future__ import annotations

from autotune.forecast import Arm
from autotune.launch.fake_machine import Machine
from autotune.records import Config, Value
from autotune.requests import DryRunRequest

TENSORS = 0.93  # of the needed memory; the rest is what the allocator holds besides


def foretold(request: DryRunRequest, machine: Machine) -> tuple[Arm, ...]:
    """An arm with every batch for each that was asked for."""

    def peak(values: dict[str, Value], batch: int) -> int:
        config = Config(values=request.config.values | values | {"batch_size": batch})
        return int(TENSORS * machine.needed_bytes(config))

    return tuple(
        Arm(values=values, points=tuple((batch, peak(values, batch)) for batch in request.batches))
        for values in request.arms
    )
