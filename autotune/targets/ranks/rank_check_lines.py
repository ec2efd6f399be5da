"""Lines of `check` about a target that matter if several ranks train it: they are reported only."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import nn

from autotune.core.records import CheckLine
from autotune.targets.commands.script.syntax import called
from autotune.targets.contract import NAMES
from autotune.targets.ranks import world
from autotune.targets.ranks.parallel import UNUSED
from autotune.units import counted

_STATISTICS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_UNTUNED_PACKAGES = {  # by package: its work, and what replaces it here
    "horovod": "Horovod starts and synchronises ranks by itself",
    "fairscale": "FairScale shares out weights by itself, and torch's FSDP2 has taken its place",
    "apex": "Apex synchronises and casts by itself, and torch's DDP and autocast have taken its place",
}
_SPAWN, _PARALLEL = "ddp_spawn", "DataParallel"  # a strategy of Lightning; torch's class
_ONE_PROCESS = (
    "torch.nn.DataParallel: one process feeds all devices, and copies the model to them in every step. One process for "
    "each device is faster"
)


def check_lines(
    model: nn.Module, file: Path | None, *, all_got_gradients: bool, finds_unused: bool
) -> Iterator[CheckLine]:
    """Yield what belongs to the ranks; `all_got_gradients`: every trainable parameter did, on all ranks."""
    size, lines = world.world().size, _lines(file)
    if any(isinstance(part, nn.DataParallel) for part in model.modules()):
        text = (
            f"{_ONE_PROCESS}: return the module in it, and search with --devices all; autotune scale --ranks 1,N "
            f"measures both on N devices{_at(lines, _PARALLEL)}"
        )
        if size > 1:
            text = f"torch.nn.DataParallel is left out: the ranks train the module in it{_at(lines, _PARALLEL)}"
        yield CheckLine(name="ranks", text=text, override=NAMES["model"], needs_attention=True)
    if size == 1:
        return
    yield CheckLine(name="ranks", text=f"{size} ranks train one model, and the batch is that of one of them")
    yield from nccl_variables()
    if finds_unused and all_got_gradients:
        text = (
            f"{UNUSED} looks through the graph in every step, and every parameter got a gradient in the one that was "
            f"taken. Unless other batches skip a part of the model, leave it out"
        )
        yield CheckLine(name="ranks", text=text + _at(lines, UNUSED), needs_attention=True)
    yield from batch_statistics(model.modules(), size)


def nccl_variables() -> Iterator[CheckLine]:
    """Yield which variables of NCCL the user has set, for several ranks."""
    if names := world.nccl_variables():
        text = f"{', '.join(names)} set outside: not tuned, on GPUs recorded; NCCL's own choice is usually good"
        yield CheckLine(name="NCCL", text=text, needs_attention=True)


def batch_statistics(modules: Iterable[nn.Module], ranks: int) -> Iterator[CheckLine]:
    """Yield whose statistics BatchNorm takes among these modules, which so many ranks train."""
    # In evaluation mode it takes the running statistics, if there are any: so frozen layers do.
    taking = [part for part in modules if part.training or getattr(part, "running_mean", None) is None]
    synchronised = sum(isinstance(part, nn.SyncBatchNorm) for part in taking)
    own = sum(isinstance(part, _STATISTICS) for part in taking)
    if synchronised:
        text = f"{counted(synchronised, 'layer')} of SyncBatchNorm: statistics of all ranks, exchanged in every pass"
        yield CheckLine(name="BatchNorm", text=text)
    if own:
        text = (
            f"{counted(own, 'layer')} with the statistics of one rank's micro-batch, not of all {ranks}: the size of "
            f"that is part of what the model learns, whatever the global batch. SyncBatchNorm takes those of all"
        )
        yield CheckLine(name="BatchNorm", text=text, needs_attention=True)


def models_of_their_own(said: Sequence[Sequence[Any]]) -> Iterator[CheckLine]:
    """Yield that ranks which exchange nothing train different models, by the names and shapes that each rank said."""
    by_rank = [{(name, tuple(shape)) for name, shape, *_ in rows} for rows in said]
    others = {number: one ^ by_rank[0] for number, one in enumerate(by_rank) if one != by_rank[0]}
    if others:
        name, shape = min(next(iter(others.values())))
        text = (
            f"rank {' and '.join(map(str, others))} and rank 0 train different parameters ({name} of shape {shape} is "
            f"on one of them only), and rank 0 exchanged nothing as large as a gradient in a step: each rank probably "
            f"trains a model of its own, and samples/s and global batch count all as one. Tune such models one by one, "
            f"without the launcher; to train one model by all ranks, make it alike on each and wrap it in "
            f"DistributedDataParallel"
        )
        yield CheckLine(name="ranks", text=text, needs_attention=True)


def untuned_parallelism(file: Path | None, *, is_script: bool = False) -> Iterator[CheckLine]:
    """Yield what the user's file uses to train on several devices that is not tuned here, with the line that does.

    `is_script`: it starts its ranks itself, and its model is not at hand.
    """
    start = "start the ranks by torchrun" if is_script else "let --ranks or --devices start the ranks"
    said = _UNTUNED_PACKAGES | {
        _SPAWN: "ddp_spawn starts ranks by pickling the model, and Lightning itself advises against it"
    }
    lines = _lines(file)
    for name in said.keys() & lines.keys():
        text = f"{said[name]}. It is not tuned: leave it out of the file, and {start}"
        yield CheckLine(name="ranks", text=text + _at(lines, name), needs_attention=True)
    if is_script and _PARALLEL in lines:
        text = f"{_ONE_PROCESS}: wrap the model in DistributedDataParallel, and {start}"
        yield CheckLine(name="ranks", text=text + _at(lines, _PARALLEL), needs_attention=True)


def spawning(file: Path | None) -> str:
    """Return what to do about processes that Lightning starts by ddp_spawn, with its line; empty where it does not."""
    line = _at(_lines(file), _SPAWN)
    if not line:
        return ""
    return f' Lightning starts them for {_SPAWN}{line}: write strategy="ddp" there, and start the script by torchrun.'


def _at(lines: Mapping[str, str], name: str) -> str:
    """Return the line in brackets, behind a text; nothing where another file has it."""
    return f" ({lines[name]})" if name in lines else ""


def _lines(file: Path | None) -> dict[str, str]:
    """Return where the file first names each of these, such as `train.py:12`; nothing of what is no Python."""
    found = dict[str, str]()
    with suppress(OSError, SyntaxError, ValueError):
        for node in ast.walk(ast.parse(file.read_text("utf-8", "replace"))) if file else ():
            names = list[str]()
            if isinstance(node, ast.Import):
                names = [one.name.partition(".")[0] for one in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module.partition(".")[0]]
            elif isinstance(node, ast.Constant) and str(node.value).startswith(_SPAWN):
                names = [_SPAWN]
            elif isinstance(node, ast.Call) and called(node) == _PARALLEL:
                names = [_PARALLEL]
            elif isinstance(node, ast.Assign) and any(getattr(one, "id", "") == UNUSED for one in node.targets):
                names = [UNUSED]
            for name in names:
                found.setdefault(name, f"{file and file.name}:{getattr(node, 'lineno', 0)}")
    return found
