"""What a search is told: everything that the command line, the settings files and the Python interface can say."""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from autotune.core.records import Limit, ObjectiveName, Stability, Value
from autotune.errors import UsageError
from autotune.objectives import NAMES
from autotune.sampler.names import SAMPLERS, SamplerName
from autotune.study.layout import STUDIES

DEVICES = ("cpu", "cuda", "mps", "xpu")
MEANT = {"gpu": "cuda", "nvidia": "cuda", "rocm": "cuda", "hip": "cuda", "metal": "mps", "intel": "xpu"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One search. Only `target` has no default."""

    target: str  # a file, a module, or module:attribute
    study: Path | None = None  # None: studies/ and the target's name
    mode: Literal["auto", "resume", "fresh"] = "auto"  # auto: resume where target and machine match
    time_budget_seconds: float = 600.0  # of this run, confirmation included
    probes: int | None = None  # of the search in this run; baseline and confirmation come on top
    device: str | None = None  # None: the accelerator if there is one
    objective: ObjectiveName = "throughput"
    within: float | None = None  # share of the fastest rate that `memory` may give up; None: 5 %
    price: float | None = None  # of an hour of this machine, for `cost`
    exact: bool = False  # only what keeps the arithmetic may move
    global_batch: int | Literal["keep", "free"] | None = None  # None: keep if the target says what, else free
    memory_limit: str | None = None  # "8GiB" or "90%"
    headroom: float | None = None  # share of the limit
    baseline: dict[str, Value] = field(default_factory=dict)  # overrides the target's own
    limits: dict[str, Limit] = field(default_factory=dict)  # knob name -> what may be searched
    tune: tuple[str, ...] | None = None  # only these knobs
    sampler: SamplerName = "structured"
    stability: Stability = "quick"
    loss_tolerance: float | None = None  # of the full-precision loss decrease, that a dtype may fall behind
    step_timeout_seconds: float | None = None  # until a silent micro-batch is a hang; None: as `ProbeBudget` says
    seed: int = 0
    command: str | None = None  # the line that resumes, as the user would type it

    def __post_init__(self) -> None:
        check_device(self.device)
        if any("\udc80" <= letter <= "\udcff" for letter in self.target):  # as Python has bytes of another encoding
            raise UsageError(
                f"The target {self.target!a} is not UTF-8 text. It probably comes from a system with another encoding, "
                f"and the JSON of a study cannot name it. Rename the file."
            )
        if not 0 < self.time_budget_seconds < math.inf:
            raise ValueError(f"the time budget must be above 0 seconds, got {self.time_budget_seconds}")
        if self.probes is not None and self.probes < 1:
            raise ValueError(f"probes must be at least 1, got {self.probes}")
        if self.headroom is not None and not 0 <= self.headroom < 1:
            raise ValueError(f"headroom must be in [0, 1), got {self.headroom}")
        if self.loss_tolerance is not None and not 0 <= self.loss_tolerance < 1:
            raise ValueError(f"the loss tolerance must be in [0, 1), got {self.loss_tolerance}")
        if self.within is not None and not 0 <= self.within < 1:
            raise ValueError(f"within must be in [0, 1), got {self.within}")
        if self.price is not None and not 0 < self.price < math.inf:
            raise ValueError(f"the price must be above 0, got {self.price}")
        if self.step_timeout_seconds is not None and not 0 < self.step_timeout_seconds < math.inf:
            raise ValueError(f"the step timeout must be above 0 seconds, got {self.step_timeout_seconds}")
        if isinstance(self.global_batch, int) and self.global_batch < 1:
            raise ValueError(f"the global batch must be at least 1, got {self.global_batch}")
        for name, value, known in (
            ("mode", self.mode, ("auto", "resume", "fresh")),
            ("objective", self.objective, NAMES),
            ("sampler", self.sampler, SAMPLERS),
            ("stability", self.stability, ("off", "quick", "full")),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        if isinstance(self.global_batch, str) and self.global_batch not in ("keep", "free"):
            raise ValueError(f"the global batch must be keep, free or a whole number, got {self.global_batch!r}")

    @property
    def folder(self) -> Path:
        """Where the study lies."""
        if self.study is not None:
            return self.study
        stem = Path(self.target.partition(":")[0]).name.removesuffix(".py").rpartition(".")[2]
        return STUDIES / (stem or "study")

    @property
    def resume_command(self) -> str:
        """The line that goes on with this study."""
        return self.command or f"autotune search {self.target} --study {self.folder} --resume"


def check_device(name: str | None) -> None:
    """Raise `UsageError` for a name that no device can have; whether the device is there is asked of torch later."""
    kind = "" if name is None else name.partition(":")[0].strip().lower()
    if name is None or re.fullmatch(rf"({'|'.join(DEVICES)})(:[0-9]+)?", name):
        return
    near = [MEANT[kind]] if kind in MEANT else difflib.get_close_matches(kind, DEVICES, n=1)
    hint = f"Did you mean {near[0]}?" if near else "Use one of cpu, cuda, cuda:1, mps and xpu."
    raise UsageError(f"There is no device called {name!r}. The name was probably mistyped. {hint}")
