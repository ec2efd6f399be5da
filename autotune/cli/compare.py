"""`autotune compare`: two studies side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.output import plain_console, say, say_json, text_width, write
from autotune.cli.target import AsJson


def compare(
    a: Annotated[str, typer.Argument(help="Folder or name of a study.")],
    b: Annotated[str, typer.Argument(help="Folder or name of the other study; ratios are B over A.")],
    json_output: AsJson = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write a page to this file.")] = None,
) -> None:
    """Compare the speed of two studies, and list what differs.

    The studies may come from two GPUs, two versions of torch, or before and after a change.
    """
    from autotune.errors import UsageError
    from autotune.report import compare as comparing
    from autotune.report.compare_text import comparison_block, render_comparison
    from autotune.study.disk import find
    from autotune.study.view import load_view

    one, other = find(a), find(b)
    if one.resolve() == other.resolve():
        raise UsageError(
            f"{a} and {b} are the same study, {one}: each ratio would be 1. A name was probably mistyped, or a second "
            f"search went on with the study of the first. Name two studies; a search makes another one with --study."
        )
    comparison = comparing.compare(load_view(one), load_view(other))
    if output is not None:
        write(output, render_comparison(comparison))
        say(f"wrote {output}", stderr=True)
    if json_output:
        say_json(comparison)
    elif output is None:
        console = plain_console()
        console.print(comparison_block(comparison, text_width(console)), soft_wrap=True)
