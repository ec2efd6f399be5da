"""`autotune check`: resolve the contract of a target and take one real step, in seconds."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def check(
    target: Annotated[str, typer.Argument(help="Your training code: model.py, pkg.train, or model.py:function.")],
    device: Annotated[str | None, typer.Option(envvar="AUTOTUNE_DEVICE", help="cpu, cuda, cuda:1, mps, xpu.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Say what was found in your code, what was inferred, and what would be tuned; nothing is searched or written."""
    from autotune import codec
    from autotune.launch.subprocess import SubprocessLauncher
    from autotune.report.blocks import check_block
    from autotune.tuning.prepare import inspect, settle
    from autotune.tuning.settings import Settings

    with tempfile.TemporaryDirectory(prefix="autotune-") as place:
        environment, facts = inspect(target, device, 0, Path(place), SubprocessLauncher(), keeps_log=False)
    request, space = settle(Settings(target=target, device=device), environment, facts)
    if json_output:
        sys.stdout.write(codec.encode(request).decode())
    else:
        Console(highlight=False).print(check_block(target, facts, environment, space.free), soft_wrap=True)
