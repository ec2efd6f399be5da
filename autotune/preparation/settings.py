"""The settings of a search: everything that command line, settings files, variables and the Python call can set.

A field with an `Option` is one option everywhere: in `autotune search --help`, as `AUTOTUNE_...`, and as a key of a
settings file. Its check is the same everywhere, and if it identifies a study, so is its name in a refusal to resume.
Options of an objective are described in its file. `autotune.search` lists the others for type checkers; a test compares
them with these.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from msgspec import Meta

from autotune.core.option import Option, described
from autotune.core.records import Count, Declaration, Limit, Share, Stability, Value
from autotune.core.results import Isolation
from autotune.core.run_length import parse_run_length
from autotune.errors import UsageError
from autotune.objectives import OBJECTIVES, ObjectiveName
from autotune.objectives.base import ObjectiveOptions
from autotune.sampler.names import SAMPLERS, SamplerName
from autotune.study.disk import STUDIES
from autotune.targets.commands.command import Command, is_command
from autotune.units import parse_bytes, parse_fraction, parse_seconds

DEVICES = ("cpu", "cuda", "mps", "xpu")
MEANT = {"gpu": "cuda", "nvidia": "cuda", "rocm": "cuda", "hip": "cuda", "metal": "mps", "intel": "xpu"}
MEASURING = "How it measures and judges"  # a heading in `--help`
ALL_DEVICES = "all"
Mode = Literal["auto", "resume", "fresh"]
# An option of one of these two types holds knobs: command line and Python look up their full names.
KnobNames = tuple[str, ...]
KnobValues = dict[str, Value]
Seconds = Annotated[float, Meta(gt=0, description="above 0 seconds")]
Device = Annotated[str, Option(help="cpu, cuda, cuda:1, mps, xpu. [default: the accelerator, else cpu]")]
Seed = Annotated[int, Meta(ge=0, le=2**32 - 1, description="from 0 to 4294967295")]


def _read_memory(text: str) -> str:
    parse_bytes(text, total=1)  # a share refers to a device that is not known yet
    return text


_POSITION = re.compile(r"0|[1-9][0-9]{0,3}")  # of a GPU: no machine has ten thousand


def read_devices(text: str) -> str:
    """Return the text of `--devices` unchanged. Raises `ValueError` for text that names no devices."""
    text = text.strip()
    listed = [one.strip() for one in text.split(",")]
    is_list = len(listed) > 1 and len({*listed}) == len(listed) and all(map(_POSITION.fullmatch, listed))
    if text == ALL_DEVICES or (text != "0" and _POSITION.fullmatch(text)) or is_list:
        return ",".join(listed)
    alone = " (GPU 0 alone is --device cuda:0)" if text == "0" else ""
    raise ValueError(
        f"{text!r} is neither all, nor a number of GPUs such as 4, nor different positions such as 0,2{alone}"
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one search. Only `target` has no default."""

    target: str  # a file, a module, module:attribute, or a command behind `-- `
    time_budget_seconds: Annotated[
        Seconds,  # of this run, confirmation included
        Option(
            help="Stop after this long, confirmation included; sooner if the answer is known: 90s, 10m, 1h30m.",
            short="-t",
            read=parse_seconds,
            typed="10m",
            called="the time budget",
        ),
    ] = 600.0
    probes: Annotated[
        Count | None,
        Option(help="Search with this many probes, besides those of baseline and confirmation.", short="-n"),
    ] = None
    study: Annotated[Path | None, Option(help="Folder of the study. [default: studies/NAME]", short="-s")] = None
    device: Device | None = None
    devices: Annotated[
        str | None,
        Option(
            help="Train on several GPUs, one process for each: all, 4 for the first four, 0,2 for these.",
            read=read_devices,
            called="the devices",
        ),
    ] = None
    ranks: Annotated[
        Count | None,
        Option(help="Train with this many processes on the CPU (gloo), as --devices does on GPUs."),
    ] = None
    objective: Annotated[
        ObjectiveName,
        Option(
            help=f"{'; '.join(f'{one.name} ({one.option_help})' for one in OBJECTIVES)}.",
            goal="objective",
        ),
    ] = OBJECTIVES[0].name
    objective_options: dict[str, Any] = field(default_factory=dict)  # those that were given, by name
    exact: Annotated[
        bool,
        Option(
            help="Change only settings that compute the same up to rounding: the precision and the global batch stay, "
            "and the micro-batch too where BatchNorm sees it or the loss is no mean over samples.",
            goal="exact",
        ),
    ] = False
    tune: Annotated[KnobNames | None, Option(help="Only these knobs: batch,workers,threads.", goal="tune")] = None
    global_batch: Annotated[
        Count | Literal["keep", "free"] | None,
        Option(
            help="Samples per optimizer step: keep (the baseline's), a number, free. [default: keep if declared]",
            called="the global batch",
            goal="global_batch",
            compared_as="the held global batch (--global-batch)",
        ),
    ] = None
    memory_limit: Annotated[
        str | None,
        Option(
            help="Pretend to have less memory, enforced: 8GiB or 90%.",
            read=_read_memory,
            goal="memory_limit_bytes",
            compared_as="--memory-limit, in bytes,",
        ),
    ] = None
    headroom: Annotated[
        Share | None,
        Option(
            help="Memory to keep free: 8%. [default: 5%, of a whole device at least 512 MiB]",
            read=parse_fraction,
            goal="headroom_fraction",
        ),
    ] = None
    baseline: Annotated[KnobValues, Option(help="What you run today: batch=64,workers=4. [default: the target's]")] = (
        field(default_factory=dict)
    )
    run_length: Annotated[
        str | None,
        Option(
            help="How long the planned training is: 12h or 30epochs. Compiling counts against it.",
            read=parse_run_length,
            called="the run length",
            goal="run_length",
        ),
    ] = None
    sampler: Annotated[SamplerName, Option(help=f"{', '.join(SAMPLERS)}.", panel=MEASURING)] = "structured"
    stability: Annotated[
        Stability,
        Option(
            help="quick: a lower precision must track fp32 over 50 paired steps or more; full: with three seeds; off.",
            goal="stability",
            panel=MEASURING,
        ),
    ] = "quick"
    profile: Annotated[
        Literal["quick", "off"],
        Option(help="quick: look once, on the baseline, at which of your lines cost time; off.", panel=MEASURING),
    ] = "quick"
    loss_tolerance: Annotated[
        Share | None,
        Option(
            help="How far a lower precision may fall behind: a share of the loss decrease in fp32. [default: 2%]",
            read=parse_fraction,
            called="the loss tolerance",
            panel=MEASURING,
            goal="loss_tolerance",
        ),
    ] = None
    step_timeout_seconds: Annotated[
        Seconds | None,
        Option(
            help="Longest time for one micro-batch: 10m; after it the probe counts as hung. [default: 3m, the first "
            "one 10m; less in a short search]",
            read=parse_seconds,
            called="the step timeout",
            panel=MEASURING,
        ),
    ] = None
    isolation: Annotated[
        Isolation,
        Option(
            help="fork: probes start from a process that has torch imported, where that is safe; fresh: none does.",
            panel=MEASURING,
        ),
    ] = "fork"
    seed: Annotated[Seed, Option(help="Random seed of model, data order and sampler.", panel=MEASURING)] = 0
    mode: Mode = "auto"  # auto: resume if target and machine match
    limits: dict[str, Limit] = field(default_factory=dict)  # knob name -> what may be searched
    declared: tuple[Declaration, ...] = ()  # by the user, in addition to those of the target's `space`
    resume_line: str | None = None  # the line that resumes, as the user would type it

    def __post_init__(self) -> None:
        check_device(self.device)
        if any("\udc80" <= letter <= "\udcff" for letter in self.target):  # bytes of another encoding
            raise UsageError(
                f"The target {self.target!a} is not UTF-8 text. It probably comes from a system with another encoding, "
                f"and the JSON of a study cannot name it. Rename the file."
            )
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode must be one of {', '.join(get_args(Mode))}, got {self.mode!r}")
        for option in options():
            option.check(self.given(option))

    @classmethod
    def of(cls, **given: Any) -> Self:
        """Return settings from values by field or option of an objective; None means not given."""
        own = {name: given.pop(name) for name in [one.name for one in options() if one.objectives] if name in given}
        return cls(objective_options={name: value for name, value in own.items() if value is not None}, **given)

    def given(self, option: Option) -> Any:
        """Return the value of an option; None for one of an objective that was not given."""
        return self.objective_options.get(option.name) if option.objectives else getattr(self, option.field)

    @property
    def folder(self) -> Path:
        """The folder of the study."""
        if self.study is not None:
            return self.study
        place = Command.parse(self.target).label if is_command(self.target) else self.target.partition(":")[0]
        stem = Path(place).name.removesuffix(".py").rpartition(".")[2]
        return STUDIES / (stem or "study")

    @property
    def resume_command(self) -> str:
        """The line that continues this study."""
        if self.resume_line is None and is_command(self.target):
            return f"autotune search --study {self.folder} --resume {self.target}"
        return self.resume_line or f"autotune search {self.target} --study {self.folder} --resume"


@cache
def options() -> tuple[Option, ...]:
    """Return the options of a search in the order of `--help`, those of the objectives after `--objective`."""
    own = described(Settings)
    behind = 1 + [one.name for one in own].index("objective")
    objectives: dict[type[ObjectiveOptions], tuple[str, ...]] = {}
    for one in OBJECTIVES:
        objectives[one.options] = (*objectives.get(one.options, ()), one.name)
    return (
        *own[:behind],
        *(option for options, names in objectives.items() for option in described(options, names)),
        *own[behind:],
    )


def goal_names() -> dict[str, str]:
    """Return the names that a refusal to resume gives to the fields of `Goal` and the options of objectives."""
    return {one.goal or one.name: one.compared_as or one.flag for one in options() if one.goal or one.objectives}


def check_device(name: str | None) -> None:
    """Raise `UsageError` for a name that no device can have; whether the device exists is asked of torch later."""
    kind = "" if name is None else name.partition(":")[0].strip().lower()
    if name is None or re.fullmatch(rf"({'|'.join(DEVICES)})(:[0-9]+)?", name):
        return
    near = [MEANT[kind]] if kind in MEANT else difflib.get_close_matches(kind, DEVICES, n=1)
    hint = f"Did you mean {near[0]}?" if near else "Use one of cpu, cuda, cuda:1, mps and xpu."
    raise UsageError(f"There is no device called {name!r}. The name was probably mistyped. {hint}")
