"""Stories of confirmations that others disturb: what they spoiled does not decide."""

from itertools import cycle

import pytest

from autotune.answer.confirmation_rounds import MOST_CONFIRMATION_ROUNDS, USUAL_ROUNDS
from autotune.core.codes import Code
from autotune.core.records import Limit
from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome
from autotune.errors import NoRecommendation
from autotune.preparation.settings import Settings
from autotune.report.phrases import headline
from autotune.study.valid_probes import interference_causes
from autotune.study.view import load_view, summaries
from autotune.testing import FakeLauncher, Machine
from autotune.tuning.engine import search
from tests.story.test_search_on_a_busy_machine import Disturbed
from tests.worlds import Listener, declared

TWO = {"tune": ("amp_dtype",), "limits": {"amp_dtype": Limit(values=(None, "bfloat16"))}}


def _search(folder, launcher, listener=None, **settings):
    told = Settings(target="model.py", study=folder, **{"sampler": "random", "time_budget_seconds": 1e6, **settings})
    return search(
        told, launcher, listener or Listener(), launcher.clock, lambda seconds: None, foreign_cores=lambda pause: 0.0
    )


def _slowed(*numbers):
    """A machine on which others slow these probes of the confirmed baseline to less than half, the first being 0."""
    seen = []

    def busy(request):
        if request.purpose != "confirm" or request.config["amp_dtype"] is not None:
            return 0.0
        if request.number not in seen:
            seen.append(request.number)
        return 0.6 if seen.index(request.number) in numbers else 0.0

    return Disturbed(busy=busy)


def _confirmed_baseline(answer):
    return next(one for one in answer.confirmations if one.config["amp_dtype"] is None)


def _of_the_baseline(folder):
    confirmed = [trial for trial in load_view(folder).trials if trial.purpose == "confirm"]
    return [trial for trial in confirmed if trial.config["amp_dtype"] is None]


def test_a_disturbed_round_is_measured_again_and_the_repeat_counts(tmp_path):
    listener, launcher = Listener(), _slowed(0)

    answer = _search(tmp_path, launcher, listener, **TWO)

    first, repeat, *others = _of_the_baseline(tmp_path)
    assert repeat.repeats == first.number
    assert _confirmed_baseline(answer).trials == (repeat.number, *(trial.number for trial in others))
    assert answer.params["amp_dtype"] == "bfloat16"
    assert answer.speedup_low > 1
    assert not {Code.PROBES_LEFT_OUT, Code.CONFIRMATION_INTERFERENCE} & {warning.code for warning in answer.warnings}
    assert any(f"Probe {first.number}: " in note and "Trying once more" in note for note in listener.notes)


def test_what_stays_disturbed_is_left_out_and_told(tmp_path):
    launcher = _slowed(0, 1)

    answer = _search(tmp_path, launcher, **TWO)

    first, _, *others = _of_the_baseline(tmp_path)
    baseline = _confirmed_baseline(answer)
    assert baseline.trials == tuple(trial.number for trial in others)
    assert len(baseline.rounds) == len(others) >= 2
    assert baseline.samples_per_second == pytest.approx(launcher.throughput(baseline.config), rel=0.05)
    assert answer.params["amp_dtype"] == "bfloat16"
    assert answer.speedup_low > 1
    (warning,) = [one for one in answer.warnings if one.code is Code.PROBES_LEFT_OUT]
    assert warning.numbers["count"] == 1
    assert [one.numbers["number"] for one in warning.numbers["probes"]] == [first.number]
    assert f"probe {first.number} at " in warning.text
    assert "waited 60%" in warning.text


def test_a_baseline_with_one_clean_round_is_told_by_that_one(tmp_path):
    """No time for more than two rounds nor for repeats, and the first is disturbed."""
    launcher = _slowed(0)

    answer = _search(tmp_path, launcher, **TWO, time_budget_seconds=45)

    of_it, baseline = _of_the_baseline(tmp_path), _confirmed_baseline(answer)
    clean = [trial for trial in of_it if not interference_causes(trial.result)]
    assert len(of_it) > len(clean) > 0
    assert baseline.trials == tuple(trial.number for trial in clean)
    assert answer.baseline_samples_per_second == pytest.approx(launcher.throughput(baseline.config), rel=0.05)


def test_a_confirmation_that_is_disturbed_throughout_says_so(tmp_path):
    launcher = Disturbed(busy=lambda request: 0.4 if request.purpose == "confirm" else 0.0)

    answer = _search(tmp_path, launcher, **TWO, time_budget_seconds=45)

    (warning,) = [one for one in answer.warnings if one.code is Code.CONFIRMATION_INTERFERENCE]
    rounds = [one.numbers for one in warning.numbers["rounds"]]
    assert any(one["slowed"] == one["rounds"] for one in rounds)
    assert "waited 40%" in warning.text
    assert all(one.trials for one in answer.confirmations)


def test_the_rates_of_the_report_are_those_of_the_rounds_that_count(tmp_path):
    answer = _search(tmp_path, _slowed(0, 1), **TWO)

    shown = {one.config: one for one in summaries(load_view(tmp_path))}
    for confirmed in answer.confirmations:
        assert shown[confirmed.config].samples_per_second == confirmed.samples_per_second
        assert tuple(trial.number for trial in shown[confirmed.config].trials) == confirmed.trials


@pytest.mark.parametrize("broken_off_at", range(3, 9))
def test_a_confirmation_with_a_repeat_that_was_broken_off_goes_on_with_its_whole_rounds(tmp_path, broken_off_at):
    class Interrupted(Disturbed):
        def run(self, request, folder):
            if isinstance(request, ProbeRequest) and request.number == broken_off_at:
                raise KeyboardInterrupt
            return super().run(request, folder)

    def busy():
        return _slowed(0)._busy

    whole, again = Listener(), Listener()
    _search(tmp_path / "whole", Disturbed(busy=busy()), whole, **TWO)
    with pytest.raises(KeyboardInterrupt):
        _search(tmp_path / "parts", Interrupted(busy=busy()), **TWO)

    answer = _search(tmp_path / "parts", Disturbed(), again, **TWO)

    confirmed = [trial for trial in load_view(tmp_path / "parts").trials if trial.purpose == "confirm"]
    whole_rounds = [
        trial.number for trial in whole.trials if trial.number < broken_off_at and trial.purpose == "confirm"
    ]
    assert len(confirmed) <= sum(trial.purpose == "confirm" for trial in whole.trials) + 2
    assert answer.params["amp_dtype"] == "bfloat16"
    counted = [number for one in answer.confirmations for number in one.trials]
    assert len(set(counted) & set(whole_rounds)) >= (len(whole_rounds) - 1) // 2 * 2 - 1


def test_repeats_are_paid_from_the_budget(tmp_path):
    """Every first probe of a round is disturbed, and no repeat."""
    listener = Listener()
    busy = Disturbed(busy=lambda request: 0.2 if request.purpose == "confirm" and request.repeats is None else 0.0)

    _search(tmp_path, busy, listener, **TWO, time_budget_seconds=45)

    assert busy.clock() <= 1.1 * 45
    assert any("There is no time for another try" in note for note in listener.notes)


def test_a_baseline_that_fails_its_repeats_alone_is_no_answer_and_no_fault(tmp_path):
    fails = FakeLauncher(
        facts=declared(),
        faults={ProbeRequest: lambda asked: Outcome.OOM_DEVICE if asked.purpose == "confirm" else None},
    )

    with pytest.raises(NoRecommendation, match="All configurations failed when re-measured"):
        _search(tmp_path, fails, tune=("gradient_accumulation_steps",))


def _unseen(config_of, *rounds, factor=0.55):
    """A machine on which something that no instrument sees slows these probes of one configuration, the first being 0.

    Those of the confirmation that are no repeats.
    """
    seen = []

    def speed(request):
        if request.purpose != "confirm" or not config_of(request.config) or request.repeats is not None:
            return 1.0
        if request.number not in seen:
            seen.append(request.number)
        return factor if seen.index(request.number) in rounds else 1.0

    return Disturbed(speed=speed)


@pytest.mark.parametrize("slowed", [0, 1])
def test_one_slow_round_of_the_baseline_that_nobody_explains_does_not_flip_the_answer(tmp_path, slowed):
    """A search of nanoGPT kept the baseline, though another configuration was 1.46 times as fast."""
    listener, launcher = Listener(), _unseen(lambda config: config["num_workers"] == 0, slowed)

    limits = {"num_workers": Limit(values=(0, 1, 2))}
    tune = {"tune": ("num_workers",), "limits": limits, "time_budget_seconds": 120}
    answer = _search(tmp_path, launcher, listener, **tune)

    truth = {one.config: launcher.throughput(one.config) for one in answer.confirmations}
    base = next(one for one in answer.confirmations if one.config["num_workers"] == 0)
    assert answer.params["num_workers"] == 2
    assert answer.undecided is None
    assert answer.speedup == pytest.approx(truth[max(truth, key=truth.get)] / truth[base.config], rel=0.03)
    assert answer.speedup_low > 0.9 * answer.speedup
    assert any("far slower than the other rounds" in note and "Trying once more" in note for note in listener.notes)


def _flat(gain, noise):
    """A machine on which only the layout matters, by that much, and whose probes scatter by that much."""
    factors = dict.fromkeys((None, "bfloat16", "float16"), 1 / gain)
    machine = Machine(sample_loading_seconds=1e-6, noise_between_probes=noise, channels_last_factor=factors)
    return FakeLauncher(machine=machine, facts=declared())


def test_what_cannot_be_told_is_undecided_and_never_no_configuration(tmp_path):
    """Rounds that scatter by a half leave a gain of a quarter open."""
    off = cycle((-1.0, 1.0))  # not drawn: with luck some rounds tell it

    def speed(request):
        return 1.5 ** next(off) if request.purpose == "confirm" and request.config["channels_last"] else 1.0

    launcher = Disturbed(speed=speed, machine=_flat(1.25, 0.0).machine)

    answer = _search(tmp_path, launcher, tune=("channels_last",), stability="off", time_budget_seconds=45)

    assert answer.params == answer.baseline
    assert answer.undecided is not None
    assert headline(answer).startswith("undecided between your baseline and ")
    assert "no configuration" not in headline(answer)


def test_rounds_go_on_while_it_is_open_and_there_is_time(tmp_path):
    """Of rounds that differ by up to 14 %, twelve do not tell 8 % apart, and some more do."""
    off = cycle((-1.0, 0.5, 0.0, -0.5, 1.0))  # not drawn: with luck twelve rounds tell it

    def speed(request):
        return 1.14 ** next(off) if request.purpose == "confirm" and request.config["channels_last"] else 1.0

    launcher = Disturbed(speed=speed, machine=_flat(1.08, 0.0).machine)

    answer = _search(tmp_path, launcher, tune=("channels_last",), stability="off")

    assert USUAL_ROUNDS < answer.rounds <= MOST_CONFIRMATION_ROUNDS
    assert answer.params["channels_last"] is True


def test_a_slow_round_of_the_faster_micro_batch_does_not_hand_its_place_to_one_under_batch_norm(tmp_path):
    """32 x 2 was recommended three times, though 64 x 1 is faster and its BatchNorm sees what it saw."""
    listener = Listener()
    launcher = _unseen(lambda config: config.batch_size == 64 and config["amp_dtype"] == "bfloat16", 0, factor=0.7)
    limits = {"amp_dtype": Limit(values=(None, "bfloat16")), "batch_size": Limit(values=(32, 64))}

    answer = _search(
        tmp_path, launcher, listener, tune=("amp_dtype", "batch_size", "gradient_accumulation_steps"), limits=limits,
        time_budget_seconds=75,
    )  # fmt: skip

    assert (answer.params["batch_size"], answer.params["amp_dtype"]) == (64, "bfloat16")


def test_other_work_is_waited_for_before_the_confirmation(tmp_path):
    listener, readings = Listener(), [1.0, 1.0, 0.0]
    launcher = Disturbed(busy=lambda request: 0.3 if request.purpose == "search" else 0.0)
    told = Settings(target="model.py", study=tmp_path, sampler="random", time_budget_seconds=1e6, **TWO)

    search(told, launcher, listener, launcher.clock, lambda seconds: None, foreign_cores=lambda pause: readings.pop(0))

    assert readings == []
    (waiting,) = [at for at, note in enumerate(listener.notes) if "for a quiet machine before" in note]
    assert listener.notes.index("The machine is quiet now.") > waiting
    assert next(at for at, note in enumerate(listener.notes) if note.startswith("Confirming ")) > waiting
