"""The four trainings that real searches are compared on, each with a space small enough to be measured whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from autotune.core.records import Limit, Value
from autotune.preparation.settings import Settings

HALF = (None, "bfloat16")
LAYOUTS = (False, True)
THREADS = (1, None)  # one, and as many as torch takes
WAITING = (None, "passive")


@dataclass(frozen=True, kw_only=True)
class Task:
    """One target with what is held while it is searched, and the grid that is measured exhaustively."""

    name: str
    what: str  # in a few words, for tables
    target: str  # from the repository's root
    global_batch: int  # samples per optimizer step, held
    memory_limit: str | None  # enforced in every probe, every plain loop and every peer; None: all there is
    usual: int  # micro-batch that somebody runs who never thought about it; the rest is accumulated
    epoch_samples: int = 1  # that a plain loop trains on at least: an epoch, where that is a matter of seconds
    device: str = "cpu"
    grid: dict[str, tuple[Value, ...]] = field(default_factory=dict)  # knob name -> values; others stay at the default

    @property
    def baseline(self) -> dict[str, Value]:
        """What is run today."""
        return {"batch_size": self.usual, "gradient_accumulation_steps": self.global_batch // self.usual}

    def coarse(self, study: Path | None = None, seed: int = 0) -> Settings:
        """A search of the measured grid and nothing else; without precision checks, which no surface holds."""
        return Settings(
            target=self.target,
            study=study,
            mode="fresh",
            time_budget_seconds=1e6,  # of the replayed clock: stopping is left to what the search believes
            device=self.device,
            global_batch=self.global_batch,
            memory_limit=self.memory_limit,
            baseline=self.baseline,
            limits={name: Limit(values=values) for name, values in self.grid.items()},
            tune=tuple(self.grid),
            stability="off",
            seed=seed,
        )

    def command(self, study: Path, seconds: float) -> tuple[str, ...]:
        """The arguments of `autotune search` over the whole space of the product."""
        baseline = ",".join(
            f"{name}={value}" for name, value in zip(("batch", "accum"), self.baseline.values(), strict=True)
        )
        return (
            "search", self.target, "--study", str(study), "--fresh", "--device", "cpu", "--quiet",
            "--time-budget", f"{seconds:.0f}s", "--global-batch", str(self.global_batch),
            *(() if self.memory_limit is None else ("--memory-limit", self.memory_limit)),
            "--baseline", baseline, "--stability", "off",
        )  # fmt: skip


TASKS = (
    Task(
        name="resnet",
        what="CNN, computing",
        target="benchmarks/targets/resnet.py",
        global_batch=64,
        memory_limit="2GiB",
        usual=16,
        grid={"batch_size": (16, 32, 64), "amp_dtype": HALF, "channels_last": LAYOUTS, "num_threads": THREADS},
    ),
    Task(
        name="char_transformer",
        what="transformer",
        target="examples/char_transformer.py",
        global_batch=16,
        memory_limit="2GiB",
        usual=8,
        grid={"batch_size": (4, 8, 16), "amp_dtype": HALF, "num_threads": THREADS, "omp_wait_policy": WAITING},
    ),
    Task(
        name="jpeg_cnn",
        what="loader-bound",
        target="benchmarks/targets/jpeg_cnn.py",
        global_batch=64,
        memory_limit="2GiB",
        usual=32,
        epoch_samples=49 * 64,
        grid={
            "batch_size": (32, 64), "num_workers": (0, 1, 2), "num_threads": THREADS, "omp_wait_policy": WAITING,
        },
    ),
    Task(
        name="denoiser",
        what="memory-limited",
        target="benchmarks/targets/denoiser.py",
        global_batch=128,
        memory_limit="640MiB",  # of which the process takes 360 before its first batch (torch 2.13, x86-64)
        usual=16,
        epoch_samples=7 * 128,
        grid={"batch_size": (16, 32, 64, 128), "amp_dtype": HALF, "channels_last": LAYOUTS},
    ),
)  # fmt: skip


def chosen(names: str) -> tuple[Task, ...]:
    """The tasks of a list with commas, or `all`. Raises `ValueError` for a name that is none."""
    known = {task.name: task for task in TASKS}
    wanted = list(known) if names == "all" else names.split(",")
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(f"no task is called {', '.join(unknown)}: there are {', '.join(known)}, and all")
    return tuple(known[name] for name in wanted)
