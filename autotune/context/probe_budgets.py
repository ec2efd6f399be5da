"""The budgets of probes: longer windows where there is time, shorter ones where there is little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.records import Config, StudyRequest
from autotune.core.requests import ProbeBudget
from autotune.knobs import loads_in_turn

# A search probe tells configurations apart, which differ by tens of per cent: recorded windows ended by this rule take
# half as long, and nine of ten rates are off by 1.6 % at most (benchmarks/probe_length.py). All others are measured for
# their own sake.
SEARCH = ProbeBudget(min_seconds=0.75, max_seconds=2.0)
# Of a probe in rounds, of the confirmation and of the ablation: the noise is between probes (docs/notes/timing.md 2),
# and more rounds tell more than longer windows (decisions/0056). Computing and loading alone explain a rate and are
# known from the search: they are short here.
BRIEF = ProbeBudget(
    max_compute_seconds=0.1, max_loader_seconds=0.5, min_seconds=0.75, max_seconds=2.0, target_precision=0.05
)
# Where steps come evenly, and where time is too short even for `BRIEF`, as where steps are long: each part of a probe
# ends as soon as it may. Recorded windows of half the length are off by 0.6 % in the median, nine of ten by 3.4 % at
# most (benchmarks/probe_length.py), but beside workers that deliver an epoch of 16 batches in bursts such were off by
# a factor of 3 (tabular, 4096 x 1).
LEAST = ProbeBudget(
    min_warmup_seconds=0.25, max_compute_seconds=0.1, max_loader_seconds=0.5, min_seconds=0.5, max_seconds=1.0,
    target_precision=0.05,
)  # fmt: skip


def round_budget(request: StudyRequest, candidates: Sequence[Config]) -> ProbeBudget:
    """Return the budget of a probe in rounds of these, where plain speed counts and there is time.

    The least where all load in turn with computing, in a loop of ours on a CPU: repeated probes then lie as far apart
    as longer ones (decisions/0085). Elsewhere that was not measured.
    """
    facts, device = request.facts, request.environment.device_kind
    is_known = facts.takes_workers and not facts.owns_loop
    return LEAST if is_known and all(loads_in_turn(config, device) for config in candidates) else BRIEF


@dataclass(frozen=True, kw_only=True)
class ConfirmationPlan:
    """The budget of each probe of a confirmation, and the most rounds that are run."""

    probe_budget: ProbeBudget
    rounds: int
    probe_seconds: float  # in the mean
