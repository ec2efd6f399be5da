"""Stories of searches that go well: how near to the truth, in how many probes, and in which order."""

from dataclasses import replace
from itertools import count

import msgspec
import pytest

from autotune.answer.choice import finalists
from autotune.answer.confirmation_rounds import confirm_in_rounds, fewest_rounds
from autotune.answer.recommend import StudyFacts, recommend
from autotune.core import codec
from autotune.core.records import Config, Goal, Limit
from autotune.core.requests import InspectRequest, ProbeRequest
from autotune.core.results import Outcome, Trial
from autotune.objectives.verdict import judge
from autotune.sampler.space import build
from autotune.study import disk
from autotune.study.recommendation import Recommendation, load_best, load_result
from autotune.study.summary import ConfigSummary
from autotune.study.valid_probes import Judged
from autotune.study.view import load_view
from autotune.testing import FakeLauncher, Machine
from autotune.tuning.exploration import PATIENCE_PROBES
from tests.worlds import Listener, declared, facts, searched, space, study_request

NARROW = {"amp_dtype": Limit(values=(None, "bfloat16")), "num_workers": Limit(values=(0, 4, 8))}
EXPLORING = ("baseline", "search")  # purposes of probes before the confirmation


def _truth(launcher, view):
    """The best samples/s that exists within the headroom, found by asking the machine itself."""
    request = view.request
    usable = request.memory_limit_bytes - request.headroom_bytes
    configs = build(request.facts, request.environment, request.goal, request.baseline).configs
    return max(launcher.throughput(c) for c in configs if launcher.machine.needed_bytes(c) <= usable)


def _found(launcher, answer):
    return launcher.throughput(Config(values=answer.params))


@pytest.mark.parametrize(("sampler", "most", "share"), [("tpe", 40, 0.93), ("random", 60, 0.85)])
def test_a_search_comes_near_the_truth_with_few_out_of_memories(tmp_path, sampler, most, share):
    """A free global batch on a 16 GiB machine, accumulated too: 1200 configurations, many of which do not fit."""
    accumulated = {"limits": {"gradient_accumulation_steps": Limit(values=(1, 2, 4, 8))}, "within": 0.0}
    for seed in (1, 2):  # tpe misses by 20 % with one seed in four, 0 among them (eight seeds tried)
        launcher = FakeLauncher(seed=seed)
        folder = tmp_path / str(seed)

        told = {"sampler": sampler, "probes": most, "time_budget_seconds": 1e6, "seed": seed, **accumulated}
        answer = searched(folder, launcher, **told)

        view = load_view(folder)
        ooms = sum(t.result.outcome is Outcome.OOM_DEVICE for t in view.trials if t.purpose in EXPLORING)
        assert _found(launcher, answer) >= share * _truth(launcher, view)
        assert ooms <= 8
        assert answer.headroom_fraction >= 0.05


def test_the_gaussian_process_comes_near_in_a_few_probes(tmp_path):
    launcher = FakeLauncher(facts=declared())

    answer = searched(tmp_path, launcher, sampler="gp", probes=9, time_budget_seconds=1e6, limits=NARROW)

    assert _found(launcher, answer) >= 0.9 * _truth(launcher, load_view(tmp_path))


def test_a_small_space_is_searched_whole_and_its_best_is_found(tmp_path):
    launcher, listener = FakeLauncher(facts=declared()), Listener()

    answer = searched(tmp_path, launcher, listener, time_budget_seconds=1e6, tune=("amp_dtype", "num_workers"))

    tried = [trial for trial in listener.trials if trial.purpose in EXPLORING]
    assert len(tried) == 3 * 5
    assert any("no configuration is left to try" in note for note in listener.notes)
    assert _found(launcher, answer) >= 0.98 * _truth(launcher, load_view(tmp_path))


def test_the_baseline_is_first_and_nothing_is_searched_twice(tmp_path):
    listener = Listener()

    searched(tmp_path, FakeLauncher(facts=declared(num_workers=1)), listener, probes=30, time_budget_seconds=1e6)

    searching = [trial for trial in listener.trials if trial.purpose in EXPLORING]
    assert listener.trials[0].purpose == "baseline"
    assert listener.trials[0].config["num_workers"] == 1
    assert len({trial.config for trial in searching}) == len(searching)
    assert [trial.number for trial in listener.trials] == list(range(len(listener.trials)))


def test_the_global_batch_is_held_where_it_was_declared(tmp_path):
    listener = Listener()

    answer = searched(tmp_path, FakeLauncher(facts=declared()), listener, probes=12)

    assert {trial.config.global_batch_size() for trial in listener.trials} == {64}
    assert answer.global_batch_size == 64


def test_a_search_ends_within_its_time_budget(tmp_path):
    launcher, listener = FakeLauncher(), Listener()

    searched(tmp_path, launcher, listener, time_budget_seconds=150)

    assert 100 < launcher.clock() <= 150 * 1.2  # the last probe and slow finalists may run over what was expected
    assert any("the time budget is used up" in note for note in listener.notes)


def test_a_search_ends_after_the_probes_that_were_asked_for(tmp_path):
    listener = Listener()

    answer = searched(tmp_path, FakeLauncher(), listener, probes=7, time_budget_seconds=1e6)

    assert sum(trial.purpose == "search" for trial in listener.trials) == 7
    assert "Search finished: the limit of 7 probes is reached, except for 2 for the refinement." in listener.notes
    assert answer.probes == len(listener.trials)


def test_a_search_ends_when_nothing_is_gained_any_more(tmp_path):
    flat = Machine(
        per_sample_seconds=dict.fromkeys((None, "bfloat16", "float16"), 0.001),
        fixed_seconds=dict.fromkeys((None, "bfloat16", "float16"), 0.0),
        channels_last_factor=dict.fromkeys((None, "bfloat16", "float16"), 1.0),
        sample_loading_seconds=0.0, optimizer_seconds=0.0, noise_between_probes=0.0, noise_between_steps=0.0,
    )  # fmt: skip
    listener = Listener()

    searched(tmp_path, FakeLauncher(machine=flat, facts=declared()), listener, time_budget_seconds=1e6)

    assert f"Search finished: the last {PATIENCE_PROBES} probes gained less than 1%." in listener.notes


def test_the_finalists_and_the_baseline_are_measured_again_interleaved_and_reversed(tmp_path):
    """No two of them are equally fast, which would take more rounds than three."""
    listener = Listener()
    limits = {"amp_dtype": Limit(values=(None, "bfloat16")), "num_workers": Limit(values=(0, 2, 4))}

    answer = searched(tmp_path, FakeLauncher(facts=declared()), listener, limits=limits, time_budget_seconds=1e6)

    order = [trial.config for trial in listener.trials if trial.purpose == "confirm"]
    size = len(set(order))
    rounds = [order[start : start + size] for start in range(0, len(order), size)]
    assert len(rounds) == 3
    assert answer.rounds >= 3  # and those of the ablation
    assert rounds[1] == rounds[0][::-1]
    assert rounds[2] == rounds[0]
    assert Config(values=answer.baseline) in rounds[0]


def test_the_answer_rests_on_fresh_numbers_only(tmp_path):
    listener = Listener()

    answer = searched(tmp_path, FakeLauncher(facts=declared()), listener, probes=10)

    confirming = {trial.number: trial for trial in listener.trials if trial.purpose not in EXPLORING}
    for confirmation in answer.confirmations:
        rates = [confirming[number].result.measurement.samples_per_second for number in confirmation.trials]
        assert confirmation.rounds == pytest.approx(rates, rel=1e-4)
        assert len(rates) >= 2


def test_a_short_budget_still_confirms_in_rounds_enough_for_an_interval(tmp_path):
    answer = searched(tmp_path, FakeLauncher(facts=declared()), time_budget_seconds=30)

    assert 2 <= answer.rounds <= fewest_rounds(len(answer.confirmations))
    assert 1 < answer.speedup_low < answer.speedup_high


@pytest.mark.parametrize(("budget", "most"), [(60, 1.2), (75, 1.1)])
def test_a_short_budget_is_hardly_overrun_and_three_configurations_are_looked_at(tmp_path, budget, most):
    launcher, listener = FakeLauncher(facts=declared()), Listener()

    searched(tmp_path, launcher, listener, time_budget_seconds=budget, sampler="structured")

    assert launcher.clock() <= most * budget
    assert sum(trial.purpose == "search" for trial in listener.trials) >= 3


def test_a_budget_that_is_too_short_is_said_after_the_baseline_and_the_advice_is_kept(tmp_path):
    short, longer, launcher = Listener(), Listener(), FakeLauncher(facts=declared())
    searched(tmp_path / "short", FakeLauncher(facts=declared()), short, time_budget_seconds=30, sampler="structured")
    (advice,) = [note for note in short.notes if note.startswith("The time budget is short")]
    minutes = int(advice.partition("--time-budget ")[2].partition("m")[0])

    searched(tmp_path / "longer", launcher, longer, time_budget_seconds=60 * minutes, sampler="structured")

    assert "short: 3 more probes and a short confirmation take about " in advice
    assert "; fewer probes are run." in advice
    assert minutes == 2
    assert launcher.clock() <= 60 * minutes
    assert not any("is short" in note for note in longer.notes)


def test_a_budget_that_no_search_fits_into_is_said_before_the_first_probe_and_once(tmp_path):
    class SlowToLoad(FakeLauncher):
        def run(self, request, folder):
            answer = super().run(request, folder)
            return (
                msgspec.structs.replace(answer, elapsed_seconds=3.0) if isinstance(request, InspectRequest) else answer
            )

    listener, settings = Listener(), {"time_budget_seconds": 30, "sampler": "structured"}
    searched(tmp_path / "study", SlowToLoad(facts=declared()), listener, **settings)
    by_first = tuple(listener.notes)
    searched(tmp_path / "study", SlowToLoad(facts=declared()), listener, **settings)  # it goes on, and needs less

    said = next(note for note in listener.notes if note.startswith("The time budget of"))
    assert listener.notes[0] == said
    assert sum("is short" in note for note in by_first) == 1  # nothing more about it after the baseline
    assert sum("is short: a probe takes" in note for note in listener.notes) == 1
    assert "of 30 s is short: a probe takes about 5.5 s here, and the shortest search" in said


def test_whoever_resumes_is_asked_for_the_time_of_what_is_missing_only(tmp_path):
    listener = Listener()
    searched(tmp_path, FakeLauncher(facts=declared()), probes=4, time_budget_seconds=1e6)

    searched(tmp_path, FakeLauncher(facts=declared()), listener, time_budget_seconds=12)

    (advice,) = [note for note in listener.notes if note.startswith("The time budget is short")]
    assert advice.startswith("The time budget is short: a short confirmation takes about ")
    assert advice.endswith(" Use --time-budget 1m or more.")


def test_best_json_is_what_was_returned_and_shown(tmp_path):
    listener = Listener()

    answer = searched(tmp_path, FakeLauncher(facts=declared()), listener, probes=5)

    assert codec.read(tmp_path / disk.BEST, Recommendation) == answer == listener.answer == load_result(tmp_path)
    assert load_best(tmp_path, check=False) == answer.params


def test_a_study_can_be_read_as_it_was_searched(tmp_path):
    listener = Listener()

    searched(tmp_path, FakeLauncher(facts=declared()), listener, probes=5)

    view = load_view(tmp_path)
    assert list(view.trials) == listener.trials
    assert not view.running
    assert len(listener.lines) == 4


def test_the_reporter_hears_of_every_better_probe_and_of_no_other(tmp_path):
    listener = Listener()

    searched(tmp_path, FakeLauncher(facts=declared()), listener, probes=15)

    best, better = 0.0, []
    for trial in listener.trials:
        rate = trial.result.measurement.samples_per_second if trial.result.measurement else 0.0
        if trial.purpose in EXPLORING and rate > best:
            best = rate
            better.append(trial.number)
    assert listener.best == better


EQUAL = Machine(
    per_sample_seconds=dict.fromkeys((None, "bfloat16"), 0.001),
    fixed_seconds=dict.fromkeys((None, "bfloat16"), 0.01),
    channels_last_factor=dict.fromkeys((None, "bfloat16"), 1.0),
    per_sample_bytes=dict.fromkeys((None, "bfloat16"), 2.0**20),
    static_bytes=dict.fromkeys((None, "bfloat16"), 2.0**30),
    sample_loading_seconds=0.0,
    noise_between_probes=0.02,
)


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.05])
def test_among_equals_pure_noise_does_not_displace_the_baseline(tmp_path, noise):
    """Forty run-offs between configurations that are truly equal, after a search that was lucky with some of them."""
    made = space(Goal(global_batch=64, limits={"batch_size": Limit(values=(64,)), "amp_dtype": Limit(values=(None,))}))
    request = study_request()
    kept = 0
    for seed in range(40):
        launcher = FakeLauncher(machine=replace(EQUAL, noise_between_probes=noise), seed=seed)
        numbers = count()

        def probe(where, purpose="confirm", launcher=launcher, numbers=numbers):
            asked = ProbeRequest(target="m.py", config=where, device="cuda:0", number=next(numbers), purpose=purpose)
            result = launcher.run(asked, tmp_path)
            trial = Trial(number=asked.number, purpose=purpose, config=where, result=result)
            return Judged(trial, judge(result, request))

        candidates = finalists([probe(where, "search") for where in made.configs], request)
        if all(candidate.config != request.baseline for candidate in candidates):
            candidates.append(ConfigSummary(config=request.baseline, found=None))

        answer = recommend(
            confirm_in_rounds(candidates, 2, probe, request), request, StudyFacts(study="s", probes=1, seconds=1.0)
        )

        kept += answer.params == answer.baseline

    assert kept >= 36


def test_a_whole_search_among_equals_keeps_the_baseline(tmp_path):
    launcher = FakeLauncher(machine=EQUAL, facts=declared())
    limits = {"amp_dtype": Limit(values=(None, "bfloat16")), "batch_size": Limit(values=(64,))}

    answer = searched(tmp_path, launcher, probes=8, time_budget_seconds=1e6, limits=limits)

    assert answer.params == answer.baseline
    assert answer.speedup == 1.0


def test_among_equals_the_smallest_global_batch_wins_where_it_is_free(tmp_path):
    flat = replace(EQUAL, fixed_seconds={None: 0.0}, optimizer_seconds=0.0, noise_between_probes=0.001)
    launcher = FakeLauncher(machine=flat, facts=facts(baseline={"batch_size": 16384}))
    limits = {"batch_size": Limit(values=(8, 32, 128))}

    answer = searched(
        tmp_path, launcher, global_batch="free", limits=limits, tune=("batch_size",), time_budget_seconds=1e6
    )

    assert answer.baseline_samples_per_second is None  # it does not fit
    assert answer.params["batch_size"] == 8
