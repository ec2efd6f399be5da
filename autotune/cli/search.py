"""`autotune search`: the main command."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.dry_run import plan
from autotune.cli.options import Options, with_knob_options
from autotune.cli.output import plain_console
from autotune.cli.settings_file import announce
from autotune.core.records import Limit
from autotune.objectives import NAMES
from autotune.sampler.names import SAMPLERS
from autotune.units import parse_bytes, parse_fraction, parse_price, parse_seconds

if TYPE_CHECKING:
    from autotune.tuning.settings import Settings


def _variable(name: str) -> str:
    return f"AUTOTUNE_{name}"


@with_knob_options
def search(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="Your training code: model.py, pkg.train, or model.py:function.")],
    time_budget: Annotated[
        str,
        typer.Option(
            "--time-budget", "-t", envvar=_variable("TIME_BUDGET"), help="Stop after this long: 90s, 10m, 1h30m."
        ),
    ] = "10m",
    probes: Annotated[
        int | None,
        typer.Option(
            "--probes",
            "-n",
            min=1,
            envvar=_variable("PROBES"),
            help="Search with so many probes; those of the baseline and of the confirmation come on top.",
        ),
    ] = None,
    study: Annotated[
        Path | None,
        typer.Option("--study", "-s", envvar=_variable("STUDY"), help="Folder of the study. [default: studies/NAME]"),
    ] = None,
    resume: Annotated[
        bool | None,
        typer.Option(
            "--resume/--fresh",
            help="Go on with the study / begin anew, the old one moved aside. [default: go on if it matches]",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            envvar=_variable("DEVICE"), help="cpu, cuda, cuda:1, mps, xpu. [default: the accelerator, else cpu]"
        ),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            envvar=_variable("OBJECTIVE"),
            help="throughput (samples/s); memory (the least within --within of the fastest); energy (samples per joule "
            "of an NVIDIA GPU); cost (samples for the money, with --price); time-to-quality (throughput less what a "
            "large global batch wastes by the measured gradient noise; needs --global-batch free).",
        ),
    ] = "throughput",
    within: Annotated[
        str | None,
        typer.Option(envvar=_variable("WITHIN"), help="How much slower memory may be than the fastest. [default: 5%]"),
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(envvar=_variable("PRICE"), help="Of an hour of this machine, for cost: 2.49, in any currency."),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            envvar=_variable("EXACT"),
            help="Move only what computes the same up to the order of rounding: the dtype and the global batch stay, "
            "and the micro-batch too where BatchNorm sees it.",
        ),
    ] = False,
    tune: Annotated[
        str | None,
        typer.Option(envvar=_variable("TUNE"), help="Only these knobs: batch,workers,threads."),
    ] = None,
    fix: Annotated[str | None, typer.Option(envvar=_variable("FIX"), help="Hold knobs: amp=bf16,workers=2.")] = None,
    global_batch: Annotated[
        str | None,
        typer.Option(
            envvar=_variable("GLOBAL_BATCH"),
            help="Samples per optimizer step: keep (the baseline's), a number, free. [default: keep if declared]",
        ),
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(envvar=_variable("MEMORY_LIMIT"), help="Pretend to have less memory, enforced: 8GiB or 90%."),
    ] = None,
    headroom: Annotated[
        str | None,
        typer.Option(
            envvar=_variable("HEADROOM"),
            help="Memory to keep free: 8%. [default: 5%, of a whole device at least 512 MiB]",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            envvar=_variable("BASELINE"), help="What you run today: batch=64,workers=4. [default: the target's]"
        ),
    ] = None,
    sampler: Annotated[str, typer.Option(envvar=_variable("SAMPLER"), help=f"{', '.join(SAMPLERS)}.")] = "structured",
    stability: Annotated[
        str,
        typer.Option(
            envvar=_variable("STABILITY"),
            help="quick: a dtype must track full precision over 50 paired steps; full: with three seeds; off.",
        ),
    ] = "quick",
    loss_tolerance: Annotated[
        str | None,
        typer.Option(
            envvar=_variable("LOSS_TOLERANCE"),
            help="How far a dtype may fall behind: a share of the full-precision loss decrease. [default: 2%]",
        ),
    ] = None,
    step_timeout: Annotated[
        str | None,
        typer.Option(
            envvar=_variable("STEP_TIMEOUT"),
            help="How long a micro-batch may take before it is hung: 10m. [default: 3m, the first one 10m]",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(min=0, max=2**32 - 1, envvar=_variable("SEED"), help="Of model, data order and sampler."),
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be searched; run no probe.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="The recommendation as JSON on standard output.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Copy best.json to this file too.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the result.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also why each failed probe failed.")] = False,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="No live line.")] = False,
    **knobs: str | None,
) -> None:
    """Search the fastest training configuration, and confirm it.

    Or the best by another --objective. Each probe is a short training run of its own process on your real data.
    Ctrl-C keeps the study; the same command goes on with it. Options can also be set in autotune.toml, in
    [tool.autotune] of pyproject.toml, or as AUTOTUNE_TIME_BUDGET and the like.
    """
    from autotune.targets import resolve
    from autotune.tuning.settings import Settings

    if not quiet:
        announce(context)
    options = Options(context)
    limits = {
        **options.limits(knobs),
        **{name: Limit(values=(value,)) for name, value in options.pairs("--fix", fix).items()},
    }
    options.one_of("--sampler", sampler, SAMPLERS)
    options.one_of("--objective", objective, NAMES)
    options.one_of("--stability", stability, ("off", "quick", "full"))
    if memory_limit is not None:
        options.parsed("--memory-limit", memory_limit, lambda text: parse_bytes(text, total=1))
    settings = Settings(
        target=target,
        study=study,
        mode={None: "auto", True: "resume", False: "fresh"}[resume],  # type: ignore[arg-type]
        time_budget_seconds=options.parsed("--time-budget", time_budget, parse_seconds) or 0.0,
        probes=probes,
        device=device,
        objective=objective,  # type: ignore[arg-type]
        within=options.parsed("--within", within, parse_fraction),
        price=options.parsed("--price", price, parse_price),
        exact=exact,
        global_batch=options.global_batch(global_batch),
        memory_limit=memory_limit,
        headroom=options.parsed("--headroom", headroom, parse_fraction),
        baseline=options.pairs("--baseline", baseline),
        limits=limits,
        tune=options.names("--tune", tune),
        sampler=sampler,  # type: ignore[arg-type]
        stability=stability,  # type: ignore[arg-type]
        loss_tolerance=options.parsed("--loss-tolerance", loss_tolerance, parse_fraction),
        step_timeout_seconds=options.parsed("--step-timeout", step_timeout, parse_seconds),
        seed=seed,
        command=_command(),
    )
    resolve(target)  # a missing file is told before a folder is made for its study
    signal.signal(signal.SIGTERM, _interrupt)  # a scheduler's polite stop is a Ctrl-C
    if dry_run:
        plan(settings, as_json=json_output)
    else:
        _search(settings, json_output, output, quiet=quiet, verbose=verbose, progress=not no_progress)


def _search(
    settings: Settings, as_json: bool, output: Path | None, *, quiet: bool, verbose: bool, progress: bool
) -> None:
    from autotune.core import codec
    from autotune.launch.subprocess import SubprocessLauncher
    from autotune.report.blocks import result_block
    from autotune.report.terminal import TerminalReporter
    from autotune.study.layout import unwritable
    from autotune.study.view import load_view
    from autotune.tuning.engine import search as run

    console = plain_console(stderr=True)
    budget = settings.time_budget_seconds
    with TerminalReporter(console, quiet=quiet, verbose=verbose, progress=progress, budget_seconds=budget) as reporter:
        launcher = SubprocessLauncher(step_timeout_seconds=settings.step_timeout_seconds)
        recommendation = run(settings, launcher, reporter)
    if output is not None:
        try:
            codec.write(output, recommendation)
        except OSError as error:
            raise unwritable(output, error) from error
    if as_json:
        sys.stdout.write(codec.encode(recommendation).decode())
    else:
        view = load_view(Path(recommendation.study))
        plain_console().print(result_block(recommendation, view), soft_wrap=True)


def _command() -> str:
    words = [word for word in sys.argv[1:] if word not in ("--fresh", "--resume")]
    return shlex.join(["autotune", *words, "--resume"])


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
