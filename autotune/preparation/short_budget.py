"""The sentence before the first probe that says that a time budget is too short.

It needs an inspection only, as a dry run has no more. `tuning/opening.py` asks the same of timed probes, after the
baseline, unless this sentence was said.
"""

from __future__ import annotations

import math

from autotune.answer.confirmation_rounds import FEWEST_ROUNDS, probe_count
from autotune.core.records import StudyRequest
from autotune.core.requests import FEWEST_PROBE_STEPS, FEWEST_STEPS_IN_TURN, ProbeBudget
from autotune.knobs import loads_in_turn
from autotune.preparation.settings import Settings
from autotune.sampler.space import SearchSpace
from autotune.targets.commands.command import is_command
from autotune.units import counted, format_seconds

MEASURED = ProbeBudget()  # the usual seconds that a probe measures


def budget_note(
    settings: Settings, request: StudyRequest, space: SearchSpace, inspection_seconds: float, gone_seconds: float = 0.0
) -> str:
    """Return the sentence about the time budget before the first probe; empty if the budget suffices."""
    return short_budget(settings, space, inspection_seconds, *_steps(request), gone_seconds)


def first_probe_seconds(request: StudyRequest, inspection_seconds: float, budget: ProbeBudget) -> float:
    """Return the expected seconds of a probe of the baseline before any was run; of a command's at least."""
    return _probe_seconds(request.target, inspection_seconds, *_steps(request), budget)


def short_budget(
    settings: Settings, space: SearchSpace, inspection_seconds: float, step_seconds: float = 0.0,
    fewest_steps: int = FEWEST_PROBE_STEPS, gone_seconds: float = 0.0,
) -> str:  # fmt: skip
    """Return that the time left is too short for a search with a confirmation; empty if it suffices.

    For a command, the time of the inspection counts for the first probe only, which may take as long again: most of it
    goes into what its script prepares, some of it for the first time. That first probe shows more
    (`tuning/opening.py`). `gone_seconds` are those of the budget since the search began.
    """
    is_cold = is_command(settings.target)
    probe = _probe_seconds(settings.target, inspection_seconds, step_seconds, fewest_steps, MEASURED)
    budget, after_baseline = settings.time_budget_seconds, 1 + probe_count(1, FEWEST_ROUNDS, 1)
    count = 1 + after_baseline * (len(space.configs) > 1)
    left, first_probe = budget - gone_seconds, probe + inspection_seconds * is_cold
    if left >= first_probe + (count - 1) * probe:
        return ""
    late = f"may end {format_seconds(first_probe - left)} late: nothing is begun after that"
    first = f" The first probe is run all the same, and {late}." if first_probe > left else ""
    gone = f"; looking at the target took {format_seconds(gone_seconds)}" if gone_seconds >= 1 else ""
    enough = gone_seconds + first_probe + (count - 1) * max(probe, inspection_seconds)
    return (
        f"The time budget of {format_seconds(budget)} is short: a probe takes {'at least' if is_cold else 'about'} "
        f"{format_seconds(probe)} here, and the shortest search with its confirmation takes {counted(count, 'probe')}"
        f"{gone}.{first} Use --time-budget {math.ceil(enough / 60)}m or more."
    )


def _steps(request: StudyRequest) -> tuple[float, int]:
    """Return the seconds of the step that was looked at (0: not known), and the fewest of a probe of the baseline."""
    is_in_turn = loads_in_turn(request.baseline, request.environment.device_kind)
    step = request.facts.step
    return (step and step.seconds) or 0.0, FEWEST_STEPS_IN_TURN if is_in_turn else FEWEST_PROBE_STEPS


def _probe_seconds(
    target: str, inspection_seconds: float, step_seconds: float, fewest_steps: int, budget: ProbeBudget
) -> float:
    """Return the expected seconds of a probe.

    They are those of an inspection, which starts, loads, builds and takes a step like a probe, plus the probe's further
    steps (`fewest_steps` in all) or its measuring.
    """
    measuring = budget.min_warmup_seconds + budget.max_compute_seconds + budget.min_seconds
    return measuring if is_command(target) else inspection_seconds + max(measuring, (fewest_steps - 1) * step_seconds)
