"""The eight targets whose answers are checked, and the hand-made grid and curve that plain loops run for each."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

from autotune.core.records import Value
from benchmarks.surfaces.tasks import HALF, LAYOUTS, THREADS, Task

ASSUMED = 32  # micro-batch that a search assumes where a target declares none
Values = dict[str, Value]


@dataclass(frozen=True, kw_only=True)
class Target(Task):
    """A task that is searched with the product's defaults, as its user would type it; `grid` has four to eight cells.

    `grid` is crossed; what it leaves out is the baseline's. Its batch, if any, is a micro-batch of the held global one.
    """

    arguments: tuple[str, ...] = ()  # of the search
    curve: tuple[int, ...] = ()  # batches that plain loops run to see the knee; empty: the target declares its batch

    @property
    def declares_batch(self) -> bool:
        """Whether the global batch is held."""
        return not self.curve

    def cells(self) -> list[Values]:
        """The hand-made grid."""
        found = []
        for values in itertools.product(*self.grid.values()):
            cell = {**self.baseline, **dict(zip(self.grid, values, strict=True))}
            cell["gradient_accumulation_steps"] = self.global_batch // int(cell["batch_size"] or 1)
            found.append(cell)
        return found

    def command(self, study: Path, seconds: float) -> tuple[str, ...]:
        """The arguments of `autotune`, for a new study."""
        limit = ("--memory-limit", self.memory_limit) if self.memory_limit else ()
        return (
            "search", self.target, "--study", str(study), "--fresh", "--device", "cpu", "--no-progress",
            "--time-budget", f"{seconds:g}s", *limit, *self.arguments,
        )  # fmt: skip


TARGETS = (
    Target(
        name="tabular",
        what="small steps, nothing declared",
        target="benchmarks/targets/tabular.py",
        global_batch=ASSUMED,
        memory_limit=None,
        usual=ASSUMED,
        grid={"num_workers": (0, 1), "num_threads": THREADS},
        curve=(32, 64, 128, 256, 512, 1024, 2048),
    ),
    Target(
        name="masked_lm",
        what="large steps, language model",
        target="benchmarks/targets/masked_lm.py",
        global_batch=64,
        memory_limit=None,
        usual=64,
        grid={"batch_size": (8, 16, 32, 64), "amp_dtype": HALF},
    ),
    Target(
        name="char_transformer",
        what="language model, nothing declared",
        target="examples/char_transformer.py",
        global_batch=ASSUMED,
        memory_limit=None,
        usual=ASSUMED,
        grid={"amp_dtype": HALF, "num_threads": THREADS},
        curve=(8, 16, 32, 64, 128, 256),
    ),
    Target(
        name="resnet",
        what="BatchNorm, computing, accumulating",
        target="benchmarks/targets/resnet.py",
        global_batch=64,
        memory_limit=None,
        usual=16,
        grid={"batch_size": (16, 64), "amp_dtype": HALF, "channels_last": LAYOUTS},
        arguments=("--global-batch", "64", "--baseline", "batch=16,accum=4"),
    ),
    Target(
        name="digits_cnn",
        what="BatchNorm, small images",
        target="examples/digits_cnn.py",
        global_batch=64,
        memory_limit=None,
        usual=64,
        grid={"channels_last": LAYOUTS, "num_workers": (0, 1), "num_threads": THREADS},
    ),
    Target(
        name="packed_cnn",
        what="loader-bound, by computing",
        target="benchmarks/targets/packed_cnn.py",
        global_batch=32,
        memory_limit=None,
        usual=32,
        grid={"num_workers": (0, 1, 2), "num_threads": THREADS},
    ),
    Target(
        name="slow_loader",
        what="loader-bound, by waiting",
        target="examples/slow_loader.py",
        global_batch=32,
        memory_limit=None,
        usual=32,
        grid={"num_workers": (2, 4, 6, 8), "num_threads": THREADS},
    ),
    Target(
        name="restorer",
        what="memory-limited",
        target="benchmarks/targets/restorer.py",
        global_batch=128,
        memory_limit="560MiB",  # in fp32 64 samples fit and 128 do not (torch 2.13, x86-64)
        usual=16,
        grid={"batch_size": (16, 32, 64, 128), "amp_dtype": HALF},
    ),
)


def chosen(names: str) -> tuple[Target, ...]:
    """The targets of a list with commas, or `all`. Raises `ValueError` for a name that is none."""
    known = {target.name: target for target in TARGETS}
    wanted = list(known) if names == "all" else names.split(",")
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(f"no target is called {', '.join(unknown)}: there are {', '.join(known)}, and all")
    return tuple(known[name] for name in wanted)
