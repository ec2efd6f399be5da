"""What each objective makes of a probe and of a run-off, and what it cannot be had without."""

import dataclasses
import sys
from typing import Annotated, Literal, get_args

import pytest
from msgspec import Meta
from msgspec.structs import replace

from autotune.answer.choice import finalists
from autotune.answer.recommend import StudyFacts, recommend
from autotune.core.codes import Code
from autotune.core.interference_readings import GpuUse
from autotune.core.option import Option
from autotune.core.records import Config, Goal
from autotune.errors import StudyError, UsageError
from autotune.objectives import OBJECTIVES, ObjectiveName, objective_of
from autotune.objectives.base import Objective, ObjectiveOptions
from autotune.objectives.energy import Energy
from autotune.objectives.throughput import Throughput
from autotune.objectives.verdict import judge
from autotune.preparation.settings import Settings, options
from autotune.report import phrases
from autotune.study.recommendation import load_result
from autotune.study.summary import ConfigSummary
from autotune.study.valid_probes import Judged
from autotune.testing import FakeLauncher
from autotune.tuning.descent import leaner
from tests.commandline import run
from tests.worlds import (
    GIB,
    config,
    declared,
    earlier,
    environment,
    facts,
    good,
    measured,
    searched,
    study_request,
    trial,
)

HELD = {"global_batch": 512}
BASE = config(batch_size=512)
LEAN = config(batch_size=128, gradient_accumulation_steps=4)
TINY = config(batch_size=8, gradient_accumulation_steps=64)


def _goal(name, **options):
    return Goal(objective=name, **HELD, objective_options=options)


def _asked(goal, **changes):
    return study_request(goal=goal, baseline=BASE, **changes)


def _metered(result, joules):
    return replace(result, gpu=GpuUse(readings=9, energy_joules=joules))


def _candidate(request, where, *results):
    trials = [trial(result, number, "confirm", **where.values) for number, result in enumerate(results)]
    verdicts = [judge(result, request) for result in results]
    return ConfigSummary(config=where, trials=tuple(trials), verdicts=tuple(verdicts))


def _recommended(request, *candidates):
    return recommend(candidates, request, StudyFacts(study="studies/x", probes=9, seconds=1.0))


def _of_memory(request):
    """Three rounds of the fastest, one 4 % slower with a quarter of its memory, and one 12 % slower with a tenth."""
    rates = ((1000, 4 * GIB, BASE), (960, GIB, LEAN), (880, GIB // 3, TINY))
    return [_candidate(request, where, *[measured(rate, peak=peak)] * 3) for rate, peak, where in rates]


def test_every_objective_is_in_the_help_of_a_search(tmp_path):
    told = run(tmp_path, "search", "--help").stdout

    assert [name for name in get_args(ObjectiveName) if name not in told] == []
    options = ("--objective", "--within", "--price", "--exact")
    assert [option for option in options if option not in told] == []


def test_the_first_objective_is_the_default_and_all_have_names_of_their_own():
    assert objective_of(Goal()) is OBJECTIVES[0]
    assert get_args(ObjectiveName) == tuple(objective.name for objective in OBJECTIVES)


class TailOptions(ObjectiveOptions, frozen=True, kw_only=True):
    quantile: Annotated[float, Meta(gt=0, lt=100, description="in (0, 100)"), Option(help="Of.")] = 95.0


class Tail(Throughput):
    """An objective that nobody has heard of, with an option of its own."""

    name, option_help, options = "tail", "the shortest tail", TailOptions

    def score(self, result, goal, noise_scale=None):
        return TailOptions.of(goal).quantile * (super().score(result, goal) or 0.0)


@pytest.fixture
def tail(monkeypatch):
    """The objective in the registry, and nothing else edited."""
    registry = (*OBJECTIVES, Tail())
    names = Literal[tuple(one.name for one in registry)]
    for module in [module for name, module in sys.modules.items() if name.startswith("autotune")]:
        for name, value in (("OBJECTIVES", registry), ("ObjectiveName", names)):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    options.cache_clear()
    yield
    options.cache_clear()


def test_a_new_objective_with_an_option_is_one_registry_line(tail, tmp_path):
    """Settings, command line, Python call, search, best.json and resuming know both, and none was edited."""
    one = next(one for one in options() if one.name == "quantile")
    launcher, asked = FakeLauncher(facts=declared()), {"objective": "tail", "probes": 2, "stability": "off"}

    answer = searched(tmp_path, launcher, quantile=50.0, **asked)

    assert (one.flag, one.help) == ("--quantile", "Of. [default: 95]")
    assert answer.goal.objective_options == load_result(tmp_path).goal.objective_options == {"quantile": 50.0}
    assert answer.achieved.score == pytest.approx(50 * answer.samples_per_second, rel=0.01)
    with pytest.raises(StudyError, match=r"--quantile was 50\.0, is 95\.0"):
        searched(tmp_path, launcher, **asked)
    with pytest.raises(UsageError, match=r"--quantile 50 has no effect with --objective memory\. It belongs to tail"):
        searched(tmp_path / "other", launcher, **{**asked, "objective": "memory"}, quantile=50.0)
    with pytest.raises(ValueError, match=r"quantile must be in \(0, 100\), got 100"):
        Settings.of(target="model.py", quantile=100)


@pytest.mark.parametrize(
    ("goal", "value"),
    [
        (Goal(), 100.0),
        (Goal(objective="memory"), 100.0),
        (Goal(objective="energy"), 256 / 40),
        (Goal(objective="cost", objective_options={"price": 7.2}), 50_000.0),
    ],
)
def test_what_a_probe_is_worth(goal, value):
    result = _metered(measured(100.0), 40.0)

    assert judge(result, study_request(goal=goal)).value == pytest.approx(value)


def test_a_probe_without_what_its_objective_needs_is_not_usable_and_says_so():
    verdict = judge(measured(100.0), study_request(goal=Goal(objective="energy")))

    assert not verdict.feasible
    assert "no reading of the GPU's energy counter" in verdict.why


def test_memory_takes_the_leanest_of_those_that_are_fast_enough():
    request = _asked(_goal("memory"))

    found = _recommended(request, *_of_memory(request))

    assert found.params == LEAN.values
    assert phrases.headline(found).startswith(
        "75% less memory than your baseline (1 GiB instead of 4 GiB) at 0.96× its"
    )
    assert phrases.is_better(found)
    assert found.reasons[0].text == "least memory within 5% of the fastest: 4% slower, and the fastest needs 4 GiB"
    reasons = {lost.config: lost.reason.text for lost in found.runners_up}
    assert reasons[BASE].startswith("4.2% faster, within the speed that may be given up, needs 4 GiB")
    assert reasons[TINY] == "8.3% slower"


@pytest.mark.parametrize(("within", "chosen"), [(0.02, BASE), (0.15, TINY)])
def test_how_much_speed_memory_may_cost_is_the_users_word(within, chosen):
    request = _asked(_goal("memory", within=within))

    assert _recommended(request, *_of_memory(request)).params == chosen.values


def test_throughput_keeps_the_fastest_of_the_same():
    request = _asked(Goal(**HELD))

    assert _recommended(request, *_of_memory(request)).params == BASE.values


def test_memory_keeps_the_baseline_where_nothing_is_leaner():
    request = _asked(_goal("memory"))

    alike = [_candidate(request, where, *[measured(1000)] * 2) for where in (BASE, LEAN)]

    found = _recommended(request, *alike)

    assert phrases.headline(found) == (
        "keep your baseline: no configuration was measurably smaller in memory and nearly as fast"
    )


def test_memory_sends_the_leanest_of_the_fast_enough_to_the_run_off():
    careful = [config(batch_size=batch) for batch in (32, 64, 256)]  # smaller batches, and yet more memory
    peaks = {BASE: (1000, 8), LEAN: (960, 2), TINY: (880, 1)} | {where: (970, 6) for where in careful}
    judged = [
        Judged(trial(measured(rate, peak=peak * GIB), number, **where.values), good(rate))
        for number, (where, (rate, peak)) in enumerate(peaks.items())
    ]

    chosen = [one.config for one in finalists(judged, _asked(_goal("memory")))]

    assert chosen[0] == BASE
    assert LEAN in chosen


def test_energy_wins_by_what_it_takes_and_tells_the_power():
    request = _asked(_goal("energy"))
    slow = [_metered(measured(90.0), joules) for joules in (9.0, 9.1, 8.9)]
    fast = [_metered(measured(100.0), joules) for joules in (18.0, 18.1, 17.9)]

    found = _recommended(request, _candidate(request, BASE, *fast), _candidate(request, LEAN, *slow))

    assert found.params == LEAN.values
    assert found.speedup == pytest.approx(0.9)
    assert found.achieved.gain == pytest.approx(2.0, rel=0.01)
    assert phrases.headline(found).startswith("2.00× as many samples per joule as your baseline (1.9")
    assert found.reasons[0].text == "28.4 samples/J at 3 W of the GPU (baseline 14.2 samples/J at 7 W)"
    assert found.runners_up[0].reason.text.startswith("50% less energy-efficient")


@pytest.mark.parametrize(
    ("joules", "said"),
    [
        (5.0, "2.00× more energy-efficient than your baseline (2.0"),
        (10.0, "most energy-efficient allowed configuration, not measurably more energy-efficient than your "),
        (20.0, "most energy-efficient allowed configuration, less energy-efficient than your baseline (0.50×"),
    ],
)
def test_an_objective_without_a_headline_of_its_own_is_told_by_its_score_and_not_by_speed(monkeypatch, joules, said):
    """The answer trains twice as fast for half, all or twice the energy of the baseline, which is refused."""
    monkeypatch.setattr(Energy, "headline", Objective.headline)
    request = _asked(_goal("energy"))
    before = [_metered(measured(100.0), joules) for joules in (10.0, 10.1, 9.9)]
    after = [_metered(measured(200.0), joules * share) for share in (1.0, 1.01, 0.99)]
    refused = dataclasses.replace(_candidate(request, BASE, *before), refused=earlier("bf16 learns less"))

    found = _recommended(request, refused, _candidate(request, LEAN, *after))

    assert phrases.headline(found).startswith(said)
    assert phrases.is_better(found) == (joules < 10)


def test_cost_tells_epochs_and_what_a_thousand_hours_save():
    request = _asked(_goal("cost", price=2.0), facts=facts(dataset_samples=100_000))
    slow, fast = [measured(100.0)] * 2, [measured(200.0)] * 2

    found = _recommended(request, _candidate(request, BASE, *slow), _candidate(request, LEAN, *fast))

    assert [reason.text for reason in found.reasons[:3]] == [
        "costs 2.78 per million samples, 0.278 per epoch, at 2.00 an hour",
        "the baseline costs 5.56 per million samples, 0.556 per epoch",
        "saves 1,000.00 of the 2,000.00 that 1,000 h of the baseline cost",
    ]
    assert phrases.headline(found).startswith("2.00× faster than your baseline")


def test_cost_tells_what_an_answer_costs_that_is_slower_than_a_refused_baseline():
    request = _asked(_goal("cost", price=2.0))
    refused = dataclasses.replace(
        _candidate(request, BASE, *[measured(200.0)] * 2), refused=earlier("bf16 learns less")
    )

    found = _recommended(request, refused, _candidate(request, LEAN, *[measured(100.0)] * 2))

    assert (found.reasons[2].code, found.reasons[2].numbers["added"]) == (Code.COST_ADDED, 2000.0)


def test_a_card_that_nvml_does_not_know_counts_no_energy():
    gpu = environment(device_uuid="GPU-00000000-0000-0000-0000-000000000000")

    with pytest.raises(UsageError, match=r"NVML reports no energy for Fake GPU 16GB\. .*\. Search with --objective"):
        objective_of(Goal(objective="energy")).check(Goal(objective="energy"), gpu, facts())


@pytest.mark.parametrize(("field", "value"), [("within", 1.0), ("price", 0.0), ("price", -1)])
def test_an_impossible_share_or_price_is_refused(field, value):
    with pytest.raises(ValueError, match=f"got {value}"):
        Settings.of(target="model.py", **{field: value})


LADDER = [
    Config(values={**BASE.values, "batch_size": 2**n, "gradient_accumulation_steps": 2 ** (9 - n)})
    for n in range(3, 10)
]


def _descent(rates, slack=0.05):
    """The batches that a descent probes below 512, where batch b runs at `rates(b)` and needs memory like b."""
    judged = [_probed(BASE, rates)]
    probed = []
    while True:
        left = [one for one in LADDER if one not in {t.config for t, _ in judged}]
        following = leaner(judged, left, slack=slack, host=False)
        if following is None:
            return probed
        probed.append(following.batch_size)
        judged.append(_probed(following, rates))


def _probed(where, rates):
    rate = rates(where.batch_size)
    return Judged(trial(measured(rate, peak=GIB + where.batch_size), 0, **where.values), good(rate))


def test_a_descent_halves_its_way_to_the_smallest_batch_that_is_fast_enough():
    assert _descent(lambda batch: 1000 if batch >= 64 else 500) == [64, 16, 32]
    assert _descent(lambda batch: 1000) == [64, 16, 8]
    assert _descent(lambda batch: 2 * batch) == [64, 256]


def test_a_descent_leaves_workers_alone_where_they_take_no_memory_that_counts():
    fast = config(batch_size=8, num_workers=8)
    slim = config(batch_size=8, num_workers=2)
    judged = [_probed(fast, lambda _: 100)]

    assert leaner(judged, [slim], slack=0.05, host=False) is None
    assert leaner(judged, [slim], slack=0.05, host=True) == slim
