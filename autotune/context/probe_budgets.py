"""The budgets of probes: longer windows if there is time, shorter ones if there is little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.records import Config, StudyRequest
from autotune.core.requests import ProbeBudget
from autotune.knobs import loads_in_turn

# A search probe distinguishes configurations, which differ by tens of per cent: recorded windows that end by this rule
# take half as long, and nine of ten rates are wrong by 1.6 % at most (benchmarks/probe_length.py). All other probes are
# measured for their own sake.
SEARCH = ProbeBudget(min_seconds=0.75, max_seconds=2.0)
# For a probe in rounds, of the confirmation and of the ablation: the noise is between probes (docs/notes/timing.md 2),
# so that more rounds tell more than longer windows (decisions/0056). The parts that compute alone and load alone
# explain a rate and are known from the search: they are short here.
BRIEF = ProbeBudget(
    max_compute_seconds=0.1, max_loader_seconds=0.5, min_seconds=0.75, max_seconds=2.0, target_precision=0.05
)
# For steps of even length, and if time is too short even for `BRIEF`, as with long steps: each part of a probe ends as
# soon as it may. Recorded windows of half the length are wrong by 0.6 % in the median, nine of ten by 3.4 % at most
# (benchmarks/probe_length.py). But beside workers that deliver an epoch of 16 batches in bursts, such windows were
# wrong by a factor of 3 (tabular, 4096 x 1).
LEAST = ProbeBudget(
    min_warmup_seconds=0.25, max_compute_seconds=0.1, max_loader_seconds=0.5, min_seconds=0.5, max_seconds=1.0,
    target_precision=0.05,
)  # fmt: skip


def round_budget(request: StudyRequest, candidates: Sequence[Config]) -> ProbeBudget:
    """Return the budget of a probe in rounds of these, if the objective is speed and there is time.

    It is the smallest one if all load and compute in turn, in a loop of autotune on a CPU: repeated probes then differ
    as much as longer ones (decisions/0085). Elsewhere that was not measured.
    """
    facts, device = request.facts, request.environment.device_kind
    is_known = facts.takes_workers and not facts.owns_loop and facts.ranks == 1
    return LEAST if is_known and all(loads_in_turn(config, device) for config in candidates) else BRIEF


@dataclass(frozen=True, kw_only=True)
class ConfirmationPlan:
    """The budget of each probe of a confirmation, and the most rounds that are run."""

    probe_budget: ProbeBudget
    rounds: int
    probe_seconds: float  # mean
