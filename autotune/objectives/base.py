"""The base class of objectives: the score to maximise, the order among ties, and the words for both.

A search maximises `score`, one number per probe, and confirms the finalists in interleaved rounds. Among those that
count as good as the best one by `slack`, the one with the lowest `order` wins. Remaining ties are decided for all
objectives alike: for the baseline, else for the more cautious one (`answer/choice.py`).

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

# The allocator rounds, and the host's resident set varies from run to run: peaks within this factor count as equal.
MEMORY_STEP = 1.1
DESCENT_PROBES = 4  # for the batches below the fastest one: halving searches a ladder of up to fifteen
KNEE_SHARE = 0.05  # of the best score: a larger global batch that gains less changes much for little (decisions/0044)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The end of a search: the configuration chosen, those it is compared with, and its gain."""

    chosen: ConfigSummary
    baseline: ConfigSummary | None  # None if it cannot run here
    baseline_name: str  # "your baseline"
    best: ConfigSummary  # the highest score of all that may be recommended, chosen or not
    gain: tuple[float, float, float] | None  # score of the chosen one over the baseline's: estimate, low, high (95 %)
    speedup: tuple[float, float, float] | None  # the same of samples/s
    goal: Goal
    facts: TargetFacts

    def gained(self, code: Code) -> Notice | None:
        """Return the notice of a score that is surely above the baseline's; None otherwise."""
        gain, low, high = self.gain or (0.0, 0.0, 0.0)
        if low <= 1 or self.chosen == self.baseline:
            return None
        return notice(code, gain=gain, baseline=self.baseline_name, low=low, high=high)


class ObjectiveOptions(Record, frozen=True, kw_only=True):
    """The options of an objective, each a field annotated with an `Option`; by default there are none.

    `within: Annotated[Share, Option(help="How much slower memory may be.")] = 0.05` is `--within` of the command line,
    a variable, a key of a settings file, an argument of `autotune.search`, and part of a study's identity.
    """

    @classmethod
    def of(cls, goal: Goal) -> Self:
        """Return this objective's options in a goal. Raises `msgspec.ValidationError` for a value out of bounds."""
        return msgspec.convert(goal.objective_options, cls)


class Objective(ABC):
    """The score that a search maximises; the base of all objectives.

    Only `name`, `option_help`, `unit`, `wish` and `score` have no default. Implementations hold no state.
    """

    name: str
    option_help: str  # in the help of --objective, in brackets after the name
    options: type[ObjectiveOptions] = ObjectiveOptions
    unit: str  # of a score, as it is printed: "samples/s"
    wish: str  # completes "Looking for ...": "the most samples per second"
    better: str = "faster"  # what a higher score makes a configuration: "2.0% faster"
    worse: str = "slower"
    best: str = "fastest"  # "fastest configuration found"
    unbeaten: str = "measurably faster"  # "no configuration was measurably faster"
    is_speed: bool = False  # whether the fastest configuration is the best one: a slow one then has no chance
    counts_compiling: bool = False  # whether the score is a rate of training, lower for a run that compiles first
    missing: Code = Code.NO_SCORE  # the probable reason why a probe that ran has no score
    uses_noise_scale: bool = False  # whether the gradient noise scale is measured before the probes
    order_step: float = 1.0  # orders that differ by at most this factor count as equal
    probe_budget: ProbeBudget = ProbeBudget()  # how long to measure one configuration, if speed is not the objective

    def check(self, goal: Goal, environment: Environment, facts: TargetFacts) -> None:
        """Raise `UsageError` if machine, target or the rest of the goal rule it out; called before any probe."""
        return

    def uses_options(self, goal: Goal) -> bool:
        """Return whether the options have an effect for this goal; if not, they are not part of it."""
        return True

    @abstractmethod
    def score(self, result: ProbeResult, goal: Goal, noise_scale: float | None = None) -> float | None:
        """Return what is maximised, above 0; None if this probe did not measure what the score needs.

        `noise_scale` is that of the gradient in samples; None while unknown.
        """

    def value_per_sample(self, goal: Goal, noise_scale: float | None = None) -> Callable[[Config], float] | None:
        """Return a function from configuration to score per sample/s; None if only probes can show it."""
        return None

    def slack(self, goal: Goal) -> float | None:
        """Return the share of the best score by which a configuration may be worse and still win by `order`.

        None means no more than the noise of the rounds and 2 %.
        """
        return None

    def knee(self, goal: Goal) -> float | None:
        """Return the share of the best score by which a configuration with a smaller global batch may be worse and win.

        None means that the global batch is held, or that the score itself includes the cost of a larger one.
        """
        return KNEE_SHARE if goal.global_batch is None else None

    def order(self, summary: ConfigSummary) -> float:
        """Return the sort key among equal scores: the lowest wins; 0 for all means no preference."""
        return 0.0

    def is_lower(self, one: ConfigSummary, other: ConfigSummary) -> bool:
        """Return whether `one` comes before `other` in the order by more than `order_step`."""
        return self.order(one) * self.order_step < self.order(other)

    def probes_after(self, goal: Goal) -> int:
        """Return how many probes to keep for stages after the exploration (`tuning/refinement.py`); 0 for none."""
        return 0 if self.knee(goal) is None else DESCENT_PROBES

    def headline(self, decision: Decision) -> Notice | None:
        """Return what was measurably gained over the baseline; None if the speed-up shows it."""
        return None

    def reasons(self, decision: Decision) -> tuple[Notice, ...]:
        """Return what else the answer should say in terms of this objective."""
        return ()
