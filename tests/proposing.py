"""A model-based sampler on a small space of knob values, without the product around it."""

import itertools

import numpy as np
import optuna
from optuna.trial import TrialState

from autotune import knobs
from autotune.knobs.base import Circumstances
from autotune.sampler.encoding import Encoding
from autotune.sampler.grid import Grid, Hardware
from autotune.sampler.space import SearchSpace
from autotune.sampler.structured import Knowledge, StructuredSampler
from autotune.testing import ENVIRONMENT, FACTS


def space_of(**domains):
    """Every combination of these values; knobs that are not named stay at their defaults."""
    everything = {knob.name: tuple(domains.get(knob.name, (knob.default,))) for knob in knobs.KNOBS}
    return SearchSpace(everything, Circumstances(facts=FACTS, environment=ENVIRONMENT, global_batch=None))


def grid_of(**domains):
    """Every combination of these values as rows, which are named; knobs that are not named stay at their defaults."""
    everything = {knob.name: (knob.default,) for knob in knobs.KNOBS} | domains
    rows = list(itertools.product(*domains.values()))
    codes = {name: np.zeros(len(rows), np.int64) for name in everything}
    for at, (name, values) in enumerate(domains.items()):
        codes[name] = np.array([values.index(row[at]) for row in rows])
    grid = Grid(everything, codes)
    grid.named = [dict(zip(domains, row, strict=True)) for row in rows]
    return grid


def row_of(grid, values):
    """The row with these values."""
    return next(row for row, named in enumerate(grid.named) if values.items() <= named.items())


class Proposals:
    """A study over the combinations of `domains`. Nothing is proposed twice, as behind the guard."""

    def __init__(self, domains, *, hardware=None, seed=0, **options):
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.domains, self.space = domains, space_of(**domains)
        self.encoding = Encoding(self.space)
        self.tried = set()
        self.sampler = StructuredSampler(
            seed=seed, hardware=hardware or Hardware(), encoding=self.encoding,
            admits=lambda config: config not in self.tried, knowledge=Knowledge(**options),
        )  # fmt: skip
        self.study = optuna.create_study(direction="maximize", sampler=self.sampler)

    def ask(self):
        """The next trial."""
        return self.study.ask(self.encoding.distributions)

    def values(self, trial):
        """The values of the knobs that were named."""
        config = self.encoding.config(trial.params)
        return {name: config[name] for name in self.domains}

    def tell(self, trial, seen, score=None):
        """Finish a trial with an observation, and its score where that is not samples/s."""
        self.tried.add(self.encoding.config(trial.params))
        for name, attribute in seen.attributes().items():
            trial.set_user_attr(name, attribute)
        if seen.samples_per_second is None:
            self.study.tell(trial, state=TrialState.PRUNED)
        else:
            self.study.tell(trial, seen.samples_per_second if score is None else score)

    def begin(self, seen, **values):
        """Probe the configuration with these values."""
        config = self.space.complete(values)
        self.study.enqueue_trial(self.encoding.params(config))
        self.tell(self.ask(), seen)

    def search(self, machine, probes):
        """Probe as often; return the values and the predictions."""
        found = []
        for _ in range(probes):
            trial = self.ask()
            found.append((self.values(trial), self.sampler.prediction))
            self.tell(trial, machine(self.values(trial)))
        return found
