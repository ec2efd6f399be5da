"""Findings about a target that matter if several ranks train it: they are reported only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from torch import nn

from autotune.core.records import Finding
from autotune.targets.contract import NAMES
from autotune.targets.ranks import world
from autotune.targets.ranks.parallel import UNUSED
from autotune.units import counted

_STATISTICS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_OTHERS = {  # by package: its work, and what replaces it here
    "horovod": "Horovod starts and synchronises ranks by itself",
    "fairscale": "FairScale shares out weights by itself, and torch's FSDP2 has taken its place",
    "apex": "Apex synchronises and casts by itself, and torch's DDP and autocast have taken its place",
}
_SPAWN = "ddp_spawn"  # a strategy of Lightning


def findings(model: nn.Module, *, all_got_gradients: bool, finds_unused: bool) -> Iterator[Finding]:
    """Yield findings for ranks; `all_got_gradients`: every trainable parameter of this rank got one."""
    size = world.world().size
    if any(isinstance(part, nn.DataParallel) for part in model.modules()):
        text = (
            "torch.nn.DataParallel: one process feeds all devices, and copies the model to them in every step. One "
            "process for each device is faster: return the module in it, and search with --devices all"
        )
        yield Finding(name="ranks", text=text, override=NAMES["model"], needs_attention=True)
    if size == 1:
        return
    yield Finding(name="ranks", text=f"{size} ranks train one model, and the batch is that of one of them")
    if finds_unused and all_got_gradients:
        text = f"{UNUSED} looks through the graph in every step, and every parameter got a gradient: leave it out"
        yield Finding(name="ranks", text=text, needs_attention=True)
    yield from _statistics(model, size)


def _statistics(model: nn.Module, size: int) -> Iterator[Finding]:
    synchronised = sum(isinstance(part, nn.SyncBatchNorm) for part in model.modules())
    own = sum(isinstance(part, _STATISTICS) for part in model.modules())
    if synchronised:
        text = f"{counted(synchronised, 'layer')} of SyncBatchNorm: statistics of all ranks, exchanged in every pass"
        yield Finding(name="BatchNorm", text=text)
    if own:
        text = (
            f"{counted(own, 'layer')} with the statistics of one rank's micro-batch, not of all {size}: the size of "
            f"that is part of what the model learns, whatever the global batch. SyncBatchNorm takes those of all"
        )
        yield Finding(name="BatchNorm", text=text, needs_attention=True)


def others(file: Path | None) -> Iterator[Finding]:
    """Yield findings about packages for several devices in the user's file that are not tuned here."""
    names = set[str]()
    with suppress(OSError, SyntaxError, ValueError):
        for node in ast.walk(ast.parse(file.read_text("utf-8", "replace"))) if file else ():
            if isinstance(node, ast.Import):
                names |= {one.name.partition(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
            elif isinstance(node, ast.Constant) and str(node.value).startswith(_SPAWN):
                names.add(_SPAWN)
    said = _OTHERS | {_SPAWN: "ddp_spawn starts ranks by pickling the model, and Lightning itself advises against it"}
    for name in said.keys() & names:
        text = f"{said[name]}. It is not tuned: leave it out of the file, and let --ranks or --devices start the ranks"
        yield Finding(name="ranks", text=text, needs_attention=True)
