"""How long each kind of probe may measure, and what it must beat."""

import msgspec
import pytest

from autotune.context.probe_budgets import BRIEF, SEARCH
from autotune.core.records import Goal
from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.sampler.observation import observed
from autotune.study import disk
from autotune.study.probe_times import FIRST_GUESS_SECONDS
from autotune.testing import FakeLauncher
from autotune.tuning.probing import probe_with_retry
from tests.worlds import GIB, config, context, measured, study_request, trial

SLOW, FAST = config(batch_size=64), config(batch_size=64, amp_dtype="bfloat16", num_workers=8, channels_last=True)


class Asked(FakeLauncher):
    """A fake machine that remembers what it was asked."""

    def __init__(self, **options):
        super().__init__(**options)
        self.requests: list[ProbeRequest] = []

    def run(self, request, folder):
        self.requests.append(request)
        return super().run(request, folder)


def _context(folder, launcher, trials=(), **goal):
    return context(folder, launcher, request=study_request(goal=Goal(global_batch=64, **goal)), trials=trials)


def test_a_search_probe_is_short_and_must_come_near_to_the_best_so_far(tmp_path):
    launcher = Asked()
    search = _context(tmp_path, launcher)

    first, _ = probe_with_retry(search, SLOW, "baseline")
    best, _ = probe_with_retry(search, FAST, "search")
    probe_with_retry(search, config(batch_size=32), "search")

    assert [request.budget for request in launcher.requests] == [ProbeBudget(), SEARCH, SEARCH]
    assert [request.incumbent_samples_per_second for request in launcher.requests] == [
        None,
        first.result.measurement.samples_per_second,
        best.result.measurement.samples_per_second,
    ]


def test_a_repeat_in_a_fresh_process_may_take_what_is_left_except_for_the_first_probe_of_the_baseline(tmp_path):
    launcher = Asked()
    search = _context(tmp_path, launcher)

    probe_with_retry(search, SLOW, "baseline")
    spare = search.budget.spare_seconds
    for purpose in ("search", "confirm", "baseline"):
        probe_with_retry(search, SLOW, purpose)

    left = search.budget.left_seconds
    assert spare < left
    assert [request.repeat_within_seconds for request in launcher.requests] == [None, spare, left, left]


def test_a_short_probe_predicts_how_long_a_full_one_and_a_brief_one_take(tmp_path):
    search = _context(tmp_path, Asked())
    probe_with_retry(search, SLOW, "baseline")
    short, _ = probe_with_retry(search, FAST, "search")

    predicted = [search.history.times.expected_seconds(probe_budget, FAST) for probe_budget in (ProbeBudget(), BRIEF)]
    full, _ = probe_with_retry(search, FAST, "confirm")
    brief, _ = probe_with_retry(search, FAST, "confirm", probe_budget=BRIEF)

    assert predicted == pytest.approx([full.result.elapsed_seconds, brief.result.elapsed_seconds], rel=0.02)
    assert full.result.elapsed_seconds > short.result.elapsed_seconds + 0.5


def test_what_was_never_probed_is_expected_to_take_as_long_as_others(tmp_path):
    search = _context(tmp_path, Asked())
    guessed = search.history.times.expected_seconds(ProbeBudget())

    seen, _ = probe_with_retry(search, SLOW, "baseline")

    assert guessed == FIRST_GUESS_SECONDS
    assert search.history.times.expected_seconds(ProbeBudget(), FAST) == pytest.approx(seen.result.elapsed_seconds)


@pytest.mark.parametrize("purpose", ["baseline", "reference", "confirm"])
def test_what_is_measured_for_its_own_sake_beats_nobody_and_takes_its_time(tmp_path, purpose):
    launcher = Asked()
    search = _context(tmp_path, launcher)
    probe_with_retry(search, FAST, "search")

    again, _ = probe_with_retry(search, SLOW, purpose)

    assert launcher.requests[-1].budget == ProbeBudget()
    assert launcher.requests[-1].incumbent_samples_per_second is None
    assert not again.result.measurement.cut_short


@pytest.mark.parametrize("objective", ["memory", "energy"])
def test_where_the_fastest_is_not_the_best_nothing_is_given_up_for_being_slow(tmp_path, objective):
    launcher = Asked()
    search = _context(tmp_path, launcher, objective=objective)
    probe_with_retry(search, FAST, "search")

    probe_with_retry(search, SLOW, "search")

    assert launcher.requests[-1].incumbent_samples_per_second is None
    assert launcher.requests[-1].budget.min_seconds > SEARCH.min_seconds


def test_a_repeat_need_not_beat_what_it_repeats(tmp_path):
    launcher = Asked()
    search = _context(tmp_path, launcher)
    slow, _ = probe_with_retry(search, SLOW, "baseline")
    probe_with_retry(search, FAST, "search")

    probe_with_retry(search, FAST, "search")

    assert launcher.requests[-1].incumbent_samples_per_second == slow.result.measurement.samples_per_second


def test_what_needs_more_memory_than_it_may_is_nobody_to_beat(tmp_path):
    launcher = Asked()
    search = _context(tmp_path, launcher)
    large, verdict = probe_with_retry(search, config(batch_size=370), "search")
    assert large.result.measurement is not None
    assert not verdict.feasible

    probe_with_retry(search, SLOW, "search")

    assert launcher.requests[-1].incumbent_samples_per_second is None


def test_a_machine_that_has_become_slower_lowers_what_must_be_beaten(tmp_path):
    launcher = Asked()
    known = (
        trial(measured(100.0), 0, "baseline", batch_size=64),
        trial(measured(200.0), 1, "search", amp_dtype="bfloat16"),
        trial(measured(50.0), 2, "reference", batch_size=64),
        trial(measured(50.0), 3, "reference", batch_size=64),
    )
    search = _context(tmp_path, launcher, known)
    for _ in known:
        disk.new_attempt(tmp_path, ProbeRequest)

    probe_with_retry(search, FAST, "search")

    # Between the two references the machine is taken to slow down evenly: probe 1 ran at 75 % of its first speed.
    assert launcher.requests[-1].incumbent_samples_per_second == pytest.approx(200.0 / 0.75 * 0.5)


def test_a_probe_that_was_cut_short_is_an_observation_like_any_other(tmp_path):
    launcher = FakeLauncher()
    search = _context(tmp_path, launcher)
    probe_with_retry(search, FAST, "search")

    slow, verdict = probe_with_retry(search, SLOW, "search")

    seen = observed(slow.result, verdict, 16 * GIB)
    assert slow.result.measurement.cut_short
    assert verdict.feasible
    assert seen.samples_per_second == pytest.approx(launcher.throughput(SLOW), rel=0.05)
    assert seen.memory_bytes == slow.result.measurement.memory.bytes


def test_a_cut_probe_takes_less_time_and_a_fast_one_no_less(tmp_path):
    request = ProbeRequest(target="m.py", config=SLOW, device="cuda:0", budget=SEARCH)
    truth = FakeLauncher().throughput(SLOW)

    whole, hopeless, equal = (
        FakeLauncher().run(msgspec.structs.replace(request, incumbent_samples_per_second=rate), tmp_path)
        for rate in (None, 2 * truth, truth)
    )

    assert hopeless.measurement.cut_short
    assert hopeless.elapsed_seconds < whole.elapsed_seconds
    assert equal == whole
