"""The base class of objectives: the score to maximise, the order among ties, and the words for both.

A search maximises `score`, one number per probe, and confirms the finalists in interleaved rounds. Among those that
`slack` lets pass for as good as the best one, the lowest `order` wins; what then still ties is decided for all
objectives alike (the baseline, else the more cautious: `answer/choice.py`).
An objective is one file beside this one and one line in `objectives/__init__.py`; its own options are in its file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import msgspec

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Config, Environment, Goal, Record, TargetFacts
from autotune.core.requests import ProbeBudget
from autotune.core.results import ProbeResult
from autotune.study.summary import ConfigSummary

# The allocator rounds, and the host's resident set varies from run to run: peaks within this factor are the same.
MEMORY_STEP = 1.1
DESCENT_PROBES = 4  # probes: the batches below the fastest one, halving what is left of a ladder of up to fifteen
KNEE_SHARE = 0.05  # of the best score: beyond it a larger global batch gains little and changes much (decisions/0044)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The end of a search: who won, over whom, and by how much."""

    chosen: ConfigSummary
    baseline: ConfigSummary | None  # None: it cannot run here
    baseline_name: str  # "your baseline"
    best: ConfigSummary  # the highest score of all that may be recommended, chosen or not
    gain: tuple[float, float, float] | None  # score of the chosen over the baseline's: estimate, low, high (95 %)
    speedup: tuple[float, float, float] | None  # the same of samples/s
    goal: Goal
    facts: TargetFacts

    def gained(self, code: Code) -> Notice | None:
        """Return the notice of a score that is surely above the baseline's; None where it is not."""
        gain, low, high = self.gain or (0.0, 0.0, 0.0)
        if low <= 1 or self.chosen == self.baseline:
            return None
        return notice(code, gain=gain, baseline=self.baseline_name, low=low, high=high)


class ObjectiveOptions(Record, frozen=True, kw_only=True):
    """The options of an objective, each a field annotated with an `Option`; by default there is none.

    `within: Annotated[Share, Option(help="How much slower memory may be.")] = 0.05` is `--within` of the command line,
    a variable, a key of a settings file, an argument of `autotune.search`, and part of a study's identity.
    """

    @classmethod
    def of(cls, goal: Goal) -> Self:
        """Return those of a goal for this objective. Raises `msgspec.ValidationError` for one that it cannot take."""
        return msgspec.convert(goal.objective_options, cls)


class Objective(ABC):
    """The score that a search maximises; the base of every objective.

    Only `name`, `option_help`, `unit`, `wish` and `score` have no default. Implementations hold no state.
    """

    name: str
    option_help: str  # in the help of --objective, in brackets behind the name
    options: type[ObjectiveOptions] = ObjectiveOptions
    unit: str  # of a score, as it is printed: "samples/s"
    wish: str  # completes "Looking for ...": "the most samples per second"
    better: str = "faster"  # what a higher score makes a configuration: "2.0% faster"
    worse: str = "slower"
    best: str = "fastest"  # "fastest configuration found"
    unbeaten: str = "measurably faster"  # "no configuration was measurably faster"
    is_speed: bool = False  # the fastest configuration is the best one: what is slow is hopeless
    counts_compiling: bool = False  # its score is a rate of training, lower over a run that compiles first
    missing: Code = Code.NO_SCORE  # why a probe that ran has no score, probably
    uses_noise_scale: bool = False  # the gradient noise scale is measured before the probes
    order_step: float = 1.0  # orders that differ by no more than this factor are the same
    probe_budget: ProbeBudget = ProbeBudget()  # how long to measure one configuration, where its speed does not decide

    def check(self, goal: Goal, environment: Environment, facts: TargetFacts) -> None:
        """Raise `UsageError` where machine, target or the rest of the goal rule it out; asked before any probe."""
        return

    def uses_options(self, goal: Goal) -> bool:
        """Whether the options make a difference for this goal: else they are no part of it."""
        return True

    @abstractmethod
    def score(self, result: ProbeResult, goal: Goal, noise_scale: float | None = None) -> float | None:
        """Return what is maximised, above 0; None if this probe did not measure what it takes.

        `noise_scale` is that of the gradient in samples, None while it is not known.
        """

    def value_per_sample(self, goal: Goal, noise_scale: float | None = None) -> Callable[[Config], float] | None:
        """Score for one sample/s of a configuration, where it is known before any probe; None: it is to be learned."""
        return None

    def slack(self, goal: Goal) -> float | None:
        """Return the share of the best score by which a configuration may fall behind and still win by `order`.

        None: by no more than the noise of the rounds and 2 %.
        """
        return None

    def knee(self, goal: Goal) -> float | None:
        """Return the share of the best score that a configuration with a smaller global batch may lack and still win.

        None: the global batch is held, or the score itself says what a larger one is worth.
        """
        return KNEE_SHARE if goal.global_batch is None else None

    def order(self, summary: ConfigSummary) -> float:
        """Sort key among equal scores: the lowest wins; 0 for all: no preference."""
        return 0.0

    def is_lower(self, one: ConfigSummary, other: ConfigSummary) -> bool:
        """Whether `one` is wanted before `other` by more than what the order may be off by."""
        return self.order(one) * self.order_step < self.order(other)

    def probes_after(self, goal: Goal) -> int:
        """Probes to keep for what follows the search proper (see `tuning/refinement.py`); 0: nothing does."""
        return 0 if self.knee(goal) is None else DESCENT_PROBES

    def headline(self, decision: Decision) -> Notice | None:
        """Return what was measurably gained over the baseline; None: the speed-up shows it."""
        return None

    def reasons(self, decision: Decision) -> tuple[Notice, ...]:
        """Return what else the answer should say in terms of this objective."""
        return ()
