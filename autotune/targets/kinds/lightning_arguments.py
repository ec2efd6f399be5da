"""The arguments of a probe's Lightning Trainer: the user's, except those that write, report or stop."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from autotune.errors import TargetError

INSTEAD = "tune the command that runs your Trainer: autotune search -- python train.py"
GIVEN = "_given_to_autotune"  # attribute of a Trainer: the user's arguments
QUIET = {  # a probe writes and reports nothing, does not stop by itself, and trains on one device
    "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
    "num_sanity_val_steps": 0, "limit_val_batches": 0, "val_check_interval": None, "check_val_every_n_epoch": 1,
    "profiler": None, "fast_dev_run": False, "max_time": None,
    "num_nodes": 1, "strategy": "auto", "default_root_dir": tempfile.gettempdir(),
}  # fmt: skip
LEFT_OUT = (  # callbacks; the last one reads data without training at the end of a training
    "Checkpoint", "ProgressBar", "ModelSummary", "EarlyStopping", "Timer", "LearningRateFinder",
    "StochasticWeightAveraging",
)  # fmt: skip
REFUSED = {  # callbacks, and their effect
    "BatchSizeFinder": "changes the batch size by itself",
    "GradientAccumulationScheduler": "changes the accumulation between epochs",
}
RANKS = ", or tune the command that starts its ranks: autotune search -- torchrun --nproc-per-node 2 train.py"
SEVERAL = ("fsdp", "deepspeed", "parallel", "xla")  # parts of the names of strategies that divide a model
# Values of `precision` that autotune may replace (lightning 2.6, `_convert_precision_to_unified_args`), with the dtype
# of autocast that each means. Other values also change the weights.
PRECISIONS = {
    None: None, 32: None, "32": None, "32-true": None, "bf16": "bfloat16", "bf16-mixed": "bfloat16",
    16: "float16", "16": "float16", "16-mixed": "float16",
}  # fmt: skip


def require_new_enough(library: ModuleType) -> None:
    """Raise `TargetError` before version 2.0, which has other loops, callbacks and values of `precision`."""
    if int(library.__version__.partition(".")[0]) < 2:
        raise TargetError(
            f"A probe of a Trainer needs {library.__name__} 2.0 or later, and {library.__version__} is installed. "
            f"Trainers before 2.0 have other loops and other arguments. Install a later one, or {INSTEAD}"
        )


def changed_arguments(
    given: Mapping[str, Any], library: ModuleType, device: str, asked: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a probe's Trainer, if the user gives `given` and a configuration asks for `asked`.

    Raises `TargetError` for arguments that no probe supports.
    """
    strategy = given.get("strategy", "auto")
    name = strategy if isinstance(strategy, str) else type(strategy).__name__
    if any(part in name.lower() for part in SEVERAL):
        ranks = "deepspeed" not in name.lower()  # tested: a command with FSDP 2; none with DeepSpeed
        raise TargetError(
            f"The Trainer has the strategy {name}, which divides a model among devices. A probe trains on one device. "
            f"Leave the strategy out{RANKS if ranks else '.'}"
        )
    logs = given.get("logger") is not False and not given.get("barebones")
    return {
        **given, **QUIET, **_on(device), **taken(asked, given, library),
        "callbacks": kept(given.get("callbacks"), library), "logger": _silent(library) if logs else False,
    }  # fmt: skip


def taken(asked: Mapping[str, Any], given: Mapping[str, Any], library: ModuleType) -> dict[str, Any]:
    """Return the `asked` arguments that a Trainer takes: no precision if the user's own stays."""
    own = has_own_precision(given, library)
    return {name: value for name, value in asked.items() if name != "precision" or not own}


def has_own_precision(given: Mapping[str, Any], library: ModuleType) -> bool:
    """Return whether the user's precision comes from a plugin, or cannot be replaced by an autocast."""
    plugins = given.get("plugins") or []
    plugins = plugins if isinstance(plugins, list | tuple) else [plugins]
    own = any(isinstance(one, library.plugins.Precision) for one in plugins)
    return own or given.get("precision") not in PRECISIONS


def kept(callbacks: Any, library: ModuleType) -> list[Any]:
    """Return the callbacks that a probe runs. Raises `TargetError`."""
    found = list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks] if callbacks is not None else []
    for name, does in REFUSED.items():
        if any(isinstance(one, getattr(library.callbacks, name)) for one in found):
            raise TargetError(
                f"The Trainer has the callback {name}, which {does}. A probe needs settings that stay. Leave it out "
                f"where it is tuned."
            )
    left_out = tuple(getattr(library.callbacks, name) for name in LEFT_OUT)
    return [one for one in found if not isinstance(one, left_out)]


@contextmanager
def making(trainer: type, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Iterator[None]:
    """Make all objects of the class `trainer` with changed arguments until the end; `GIVEN` keeps the user's."""
    original = trainer.__init__  # type: ignore[misc]  # of this very class

    @wraps(original)
    def make(self: Any, *arguments: Any, **given: Any) -> None:
        vars(self)[GIVEN] = given
        original(self, *arguments, **change(given))

    trainer.__init__ = make  # type: ignore[misc]
    try:
        yield
    finally:
        trainer.__init__ = original  # type: ignore[misc]


def replace_result(owner: Any, method: str, change: Callable[[Any], Any]) -> None:
    """Make `owner.method` return `change(result)`."""
    original = getattr(owner, method)

    @wraps(original)
    def replaced(*arguments: Any, **named: Any) -> Any:
        return change(original(*arguments, **named))

    setattr(owner, method, replaced)


def _silent(library: ModuleType) -> Any:
    """Return a logger that accepts all calls, as the user's does, and stores nothing."""
    return import_module(f"{library.__name__}.loggers.logger").DummyLogger()


def _on(device: str) -> dict[str, Any]:
    """Return the arguments for one device. Raises `TargetError` for a device that Lightning does not know."""
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda", "mps"):
        raise TargetError(
            f"Lightning has no accelerator {kind}. It knows cpu, cuda and mps. Choose one of them: --device cpu."
        )
    if kind != "cuda":
        return {"accelerator": kind, "devices": 1}
    return {"accelerator": kind, "devices": [int(index or torch.cuda.current_device())]}
