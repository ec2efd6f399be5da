"""Small worlds for tests of the search wing: facts, machines, spaces and results made by hand."""

import msgspec

from autotune.answer.choice import finalists
from autotune.answer.resumed_confirmation import ResumedConfirmation
from autotune.context.budget import TimeBudget
from autotune.context.reporter import SilentReporter
from autotune.context.search_context import SearchContext
from autotune.context.time_guard import TimeGuard
from autotune.context.trades import Trades
from autotune.core.codes import Code
from autotune.core.notices import Notice
from autotune.core.records import Config, Goal, StudyRequest, Value
from autotune.core.requests import ProbeRequest
from autotune.core.results import Failure, Measurement, MemoryPeak, Outcome, ProbeResult, Trial, Verdict
from autotune.knobs import defaults
from autotune.memory.prediction import MemoryPrediction
from autotune.precision.stage import compare_losses, trusted_probes
from autotune.preparation.settings import Settings
from autotune.sampler.guard import Guard
from autotune.sampler.space import build
from autotune.study import disk
from autotune.study.history import History
from autotune.testing import ENVIRONMENT, FACTS, FakeLauncher
from autotune.tuning.engine import search

GIB = 2**30
BATCH_SIZE = int(defaults()["batch_size"])


def config(batch_size: int = BATCH_SIZE, **values: Value) -> Config:
    """A configuration with the defaults for all that is not given."""
    return Config(values={**defaults(), "batch_size": batch_size, **values})


def facts(**changes):
    return msgspec.structs.replace(FACTS, **changes)


def environment(**changes):
    return msgspec.structs.replace(ENVIRONMENT, **changes)


def space(goal=None, baseline=None, of=None, on=None):
    return build(of or FACTS, on or ENVIRONMENT, goal or Goal(global_batch=64), baseline or config(batch_size=64))


def study_request(**changes):
    baseline = config(batch_size=64)
    domains = space().domains
    made = StudyRequest(
        target="model.py", goal=Goal(global_batch=64), environment=ENVIRONMENT, facts=FACTS, baseline=baseline,
        baseline_assumed=False, domains=domains, memory_limit_bytes=16 * GIB, enforced_limit_bytes=None,
        headroom_bytes=GIB,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def measured(rate=100.0, *, peak=GIB, losses=(2.0, 1.9, 1.8, 1.7), skipped=0, calibration=0, wait=0.0, samples=64):
    seconds = samples / rate
    return ProbeResult(
        outcome=Outcome.OK,
        elapsed_seconds=5.0,
        measurement=Measurement(
            samples=(samples,) * 4, step_seconds=(seconds,) * 4, loader_wait_seconds=(seconds * wait,) * 4,
            losses=losses, warmup_seconds=(seconds,), skipped_steps=skipped, calibration_skips=calibration,
            memory=MemoryPeak(process_bytes=GIB, reserved_bytes=peak, device_used_bytes=peak),
        ),
    )  # fmt: skip


def failed(outcome: Outcome = Outcome.OOM_DEVICE, message: str = "tried to allocate 2 GiB") -> ProbeResult:
    """A probe that left no measurement."""
    failure = Failure(phase="warm-up", message=message, evidence="torch.OutOfMemoryError", user_frame="model.py:12")
    return ProbeResult(outcome=outcome, failure=failure)


def trial(result, number=0, purpose="search", **values):
    return Trial(number=number, purpose=purpose, config=config(**values), result=result)


def good(value):
    return Verdict(value=value, constraints={"memory": -1.0, "stability": -1.0, "runnable": -1.0})


def earlier(text):
    """The notice of a sentence that has no code, as earlier versions wrote it."""
    return Notice(code=Code.EARLIER, numbers={}, text=text)


def bad(reason="out of memory"):
    return Verdict(value=None, constraints={"memory": 1.0, "stability": -1.0, "runnable": -1.0}, reason=earlier(reason))


class Listener(SilentReporter):
    """Remembers what it was told."""

    def __init__(self):
        self.lines, self.notes, self.trials, self.best, self.stages = [], [], [], [], []
        self.answer, self.stopped = None, None

    def opening(self, lines, knobs):
        self.lines = list(lines)

    def phase(self, purpose):
        self.stages.append(purpose)

    def probed(self, trial, verdict, best_so_far):
        self.trials.append(trial)
        if best_so_far:
            self.best.append(trial.number)

    def note(self, text):
        self.notes.append(text)

    detail = note

    def finished(self, recommendation):
        self.answer = recommendation

    def interrupted(self, view, resume_command):
        self.stopped = (view, resume_command)


class Interrupted(FakeLauncher):
    """A fake machine before which somebody presses Ctrl-C, during the probe that is the `at`-th of this run."""

    def __init__(self, at, **options):
        super().__init__(**options)
        self._left = at

    def run(self, request, folder):
        self._left -= isinstance(request, ProbeRequest)
        if self._left == 0 and isinstance(request, ProbeRequest):
            raise KeyboardInterrupt  # a launcher that it passes through leaves neither request nor result
        return super().run(request, folder)


def declared(**baseline):
    """Facts of a target that says what is run today."""
    return facts(baseline={"batch_size": 64, **baseline})


def searched(folder, launcher, listener=None, **settings):
    """One search on a fake machine and its simulated clock; by TPE, which knows nothing and so looks everywhere."""
    told = Settings.of(study=folder, **{"target": "model.py", "sampler": "tpe", **settings})
    return search(told, launcher, listener or Listener(), launcher.clock, foreign_cores=lambda pause: 0.0)


class NoModel:
    """A sampler that expects nothing."""

    def expected(self, study, configs):
        return []


class Ignored:
    """A database that keeps nothing."""

    study = None

    def add(self, trial, verdict):
        pass


def context(folder, launcher=None, listener=None, *, request=None, left=1000.0, trials=(), **settings):
    """All that a stage gets; `left` seconds of its time budget are left, and stay so. Its sampler expects nothing."""
    launcher, asked = launcher or FakeLauncher(), request or study_request()
    budget = settings.pop("time_budget_seconds", 1e7)
    configs, history = space(), History(asked, trials)
    guard, memory = Guard(configs), MemoryPrediction(configs, history)
    trades, time = Trades(configs, history, guard, memory), TimeBudget(history, budget, lambda: budget - left, 0.0)
    told = Settings(target="model.py", study=folder, time_budget_seconds=budget, **settings)
    return SearchContext(
        settings=told, folder=disk.make(folder), request=asked, space=configs, history=history, guard=guard,
        memory_prediction=memory, launcher=launcher, reporter=listener or Listener(), pause=lambda seconds: None,
        foreign_cores=lambda pause: 0.0, budget=time, store=Ignored(), sampler=NoModel(), trades=trades,
        time_guard=TimeGuard(trades, time, history), interrupted_confirmation=ResumedConfirmation(),
        interrupted_ablation=ResumedConfirmation(),
    )  # fmt: skip


def precise_finalists(search):
    """The three fastest configurations and what may be as fast, after their losses were compared."""

    def chosen():
        return finalists(trusted_probes(search.history), search.request)

    compare_losses(search, chosen)
    return chosen()
