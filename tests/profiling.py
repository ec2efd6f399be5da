"""An invented profile for the tests of its pages: round numbers, one slow line of each sort."""

from __future__ import annotations

from typing import Any

from autotune.core.results import Outcome
from autotune.profile.profile import Profile
from autotune.profile.records import ModuleSeconds, Part, PartSeconds, ProfileRequest, ProfileResult, SlowLine, Work
from tests.worlds import GIB, config

PARTS: dict[Part, float] = {
    "data": 0.010, "copy": 0.0, "forward": 0.040, "backward": 0.030, "optimizer": 0.015, "other": 0.005,
}  # fmt: skip
MODULES = (
    ("(loss)", "", 1.0, 0.5), ("embed", "Embedding", 1.0, 1.0), ("layers.0.linear", "Linear", 3.0, 6.0),
    ("layers.0", "Block", 1.0, 1.0), ("layers.1.linear", "Linear", 3.0, 6.0), ("layers.1", "Block", 1.0, 1.0),
)  # fmt: skip


def slow(kind: Any = "host read", share: float = 0.2, **changes: Any) -> SlowLine:
    """One slow line, which costs that share of the step of 100 ms."""
    usual = {"place": "model.py:21 in loss", "code": "history[:] = scores.tolist()", "what": ".tolist()", "count": 1.0}
    return SlowLine(kind=kind, seconds=0.1 * share, **(usual | changes))


def readings(*lines: SlowLine, **changes: Any) -> ProfileResult:
    """A step of 100 ms with these slow lines."""
    usual: dict[str, Any] = {
        "outcome": Outcome.OK,
        "steps": 40,
        "step_seconds": (0.1,) * 40,
        "samples": 64.0,
        "parts": tuple(PartSeconds(part=part, seconds=seconds) for part, seconds in PARTS.items()),
        "modules": tuple(
            ModuleSeconds(name=name, kind=kind, forward=forward / 1000, backward=backward / 1000)
            for name, kind, forward, backward in MODULES
        ),
        "work": Work(flops=10**10, peak_flops=2e11, size=1024, dtype="float32"),
    }
    return ProfileResult(**(usual | {"slow_lines": lines} | changes))


def profiled(*lines: SlowLine, **changes: Any) -> Profile:
    """What was asked, with those readings."""
    return Profile(
        label="model.py",
        machine="Example CPU",
        memory_limit_bytes=16 * GIB,
        asked=ProfileRequest(target="model.py", config=config(batch_size=64), device="cpu"),
        result=readings(*lines, **changes),
    )
