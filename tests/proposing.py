"""A model-based sampler on a small grid of knob values, without the product around it."""

import itertools

import optuna
from optuna.trial import TrialState

from autotune import knobs
from autotune.sampler.grid import Grid, Hardware
from autotune.sampler.structured import StructuredSampler


def grid_of(**domains):
    """Every combination of these values; knobs that are not named stay at their defaults."""
    points = [dict(zip(domains, chosen, strict=True)) for chosen in itertools.product(*domains.values())]
    rest = {knob.name: knob.default for knob in knobs.KNOBS}
    values = [{**rest, **point} for point in points]
    return Grid(points, values, {name: domains.get(name, (default,)) for name, default in rest.items()})


class Proposals:
    """A study over the combinations of `domains`. Nothing is proposed twice, as behind the guard."""

    def __init__(self, domains, *, hardware=None, seed=0, **options):
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.grid = grid_of(**domains)
        self.space = {name: optuna.distributions.CategoricalDistribution(values) for name, values in domains.items()}
        self.tried = set()
        self.sampler = StructuredSampler(
            seed=seed, hardware=hardware or Hardware(), grid=self.grid, space=self.space,
            admits=lambda row: row not in self.tried, **options,
        )  # fmt: skip
        self.study = optuna.create_study(direction="maximize", sampler=self.sampler)

    def ask(self):
        """The next trial."""
        return self.study.ask(self.space)

    def tell(self, trial, seen, score=None):
        """Finish a trial with an observation, and its score where that is not samples/s."""
        self.tried.add(self.grid.row(trial.params))
        for name, attribute in seen.attributes().items():
            trial.set_user_attr(name, attribute)
        if seen.samples_per_second is None:
            self.study.tell(trial, state=TrialState.PRUNED)
        else:
            self.study.tell(trial, seen.samples_per_second if score is None else score)

    def begin(self, seen, **params):
        """Probe the configuration with these parameters."""
        self.study.enqueue_trial(params)
        self.tell(self.ask(), seen)

    def search(self, machine, probes):
        """Probe as often; return the parameters and the forecasts."""
        found = []
        for _ in range(probes):
            trial = self.ask()
            found.append((dict(trial.params), self.sampler.prediction))
            self.tell(trial, machine(trial.params))
        return found
