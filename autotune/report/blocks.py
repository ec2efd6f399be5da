"""The blocks of text that commands print as their result, on standard output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.text import Text

from autotune.core.codes import Code
from autotune.core.notices import Number
from autotune.core.records import Environment, TargetFacts, Value
from autotune.core.results import Trial
from autotune.knobs import touched
from autotune.report.columns import columns, fitting_columns, header
from autotune.report.phrases import environment_line, plain
from autotune.report.terminal import probe_line
from autotune.study.view import StudyView
from autotune.units import counted, format_seconds

FEWEST_GAP = 3
LONGEST_PADDED = 60  # a longer text must not push the next column off the screen


CheckState = Literal["good", "absent", "advice", "busy", "bad"]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of `autotune doctor`: the subject, what was found, the advice, and both as code and numbers."""

    name: str
    text: str
    state: CheckState = "good"
    advice: str = ""
    code: Code
    numbers: Mapping[str, Number]


SIGNS = {
    "good": ("✓", "green"),
    "absent": ("–", "dim"),
    "advice": ("!", "yellow"),
    "busy": ("!", "yellow"),
    "bad": ("✗", "red"),
}


def trials_table(
    view: StudyView,
    *,
    failed_only: bool = False,
    sort: Literal["number", "speed", "memory"] = "number",
    width: int | None = None,
) -> Text:
    """Return the probes of a study, the best first if sorted by speed or (least) memory, failures last.

    `width` in characters drops columns as the search does; None keeps all, for a pipe.
    """
    judged = [(trial, view.verdict(trial)) for trial in sorted(view.trials, key=lambda trial: _rank(trial, sort))]
    rows = [(trial, verdict) for trial, verdict in judged if not (failed_only and verdict.feasible)]
    if not rows:
        return Text("no probe failed" if judged else "no probes yet")
    knobs = touched(trial.config for trial in view.trials)
    lines = [Text(header(fitting_columns(columns(knobs), width)), "dim")]
    return Text("\n").join([*lines, *(probe_line(trial, verdict, knobs=knobs, width=width) for trial, verdict in rows)])


def check_block(
    target: str, facts: TargetFacts, environment: Environment, domains: Mapping[str, Sequence[Value]],
    settled: Sequence[str] = (), left_out: Sequence[str] = (),
) -> Text:  # fmt: skip
    """Return the lines about a target, those inferred with what would replace them, and the tuned knobs.

    `settled` has the global batch that would be held and the baseline; `left_out` the knobs that users may expect but
    are not tuned.
    """
    block = Text().append(f"{plain(target)}\n", "bold")
    names = max((len(one.name) for one in facts.check_lines), default=0) + FEWEST_GAP
    gap = " " * FEWEST_GAP
    overridden = [len(plain(one.text)) for one in facts.check_lines if one.override]
    texts = max((length for length in overridden if length <= LONGEST_PADDED), default=0)
    own = len(facts.check_lines) - len(facts.declared)  # behind them come knobs of the user's, with any name
    for at, one in enumerate(facts.check_lines):
        if one.name == "step" and at < own:
            continue  # it has its own line below, with its time
        sign, style = SIGNS["advice" if one.inferred or one.needs_attention else "good"]
        block.append(f"  {sign} ", style).append(plain(one.name).ljust(names))
        override = f"override: {plain(one.override)}" if one.override else ""
        block.append(f"{plain(one.text).ljust(texts)}{gap}{override}".rstrip() + "\n")
    if facts.step is not None:
        step = facts.step
        learns = step.parameters_with_gradient == step.trainable_parameters and step.loss is not None
        loss = "not finite" if step.loss is None else f"{step.loss:.3g}"
        time = "time not known, as it compiled" if step.seconds is None else format_seconds(step.seconds)
        sign, style = SIGNS["good" if learns else "advice"]
        block.append(f"  {sign} ", style).append(
            f"one step on {environment.device}: loss {loss}, {time}, gradients in "
            f"{step.parameters_with_gradient} of {step.trainable_parameters} parameters\n"
        )
    tuned = [f"{name} ({len(values)} values)" for name, values in domains.items() if len(values) > 1]
    block.append("".join(f"  {line}\n" for line in (f"on {environment_line(environment)}", *settled)))
    block.append(f"  will tune: {', '.join(tuned) or 'nothing: every knob has one value here'}")
    return block.append("".join(f"\n  {text}" for text in left_out))


def doctor_block(checks: Sequence[Check]) -> Text:
    """Return the lines about a machine, with advice, and a last line that says whether it is fit."""
    block = Text()
    width = max((len(check.name) for check in checks), default=0) + FEWEST_GAP
    for check in checks:
        sign, style = SIGNS[check.state]
        block.append(f"  {sign} ", style).append(f"{check.name.ljust(width)}{plain(check.text)}\n")
        if check.advice:
            block.append(f"    {' ' * width}{plain(check.advice)}\n", "dim")
    bad = sum(check.state == "bad" for check in checks)
    advice = sum(check.state == "advice" for check in checks)
    if bad:
        return block.append(f"This machine is not fit for a search: {bad} of {len(checks)} checks failed.", "bold red")
    if any(check.state == "busy" for check in checks):
        return block.append(
            "This machine is busy: a search would take longer, and small differences would drown in noise.",
            "bold yellow",
        )
    hint = f", with {counted(advice, 'piece')} of advice above" if advice else ""
    return block.append(f"This machine is fit for a search{hint}.", "bold")


def _rank(trial: Trial, sort: str) -> tuple[float, int]:
    measured = trial.result.measurement
    if sort == "number":
        return 0, trial.number
    if measured is None:
        return float("inf"), trial.number
    return (-measured.samples_per_second if sort == "speed" else measured.memory.bytes), trial.number
