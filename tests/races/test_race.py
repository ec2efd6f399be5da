"""A race on a simulated machine: what it tells, when it ends, what it keeps."""

import itertools
import subprocess

import pytest
from msgspec.structs import replace

from autotune.core import codec
from autotune.core.interference_readings import HostInterference
from autotune.core.requests import InspectRequest, ProbeRequest
from autotune.core.results import Failure, Outcome
from autotune.core.rounds import Rounds
from autotune.errors import RaceFailed, StudyError, StudyNotFound, UsageError
from autotune.preparation.named_training import NamedTraining
from autotune.races.race import race
from autotune.races.records import RaceResult, verdict_on
from autotune.races.settings import RaceSettings
from autotune.report.race_text import notes
from autotune.study.disk import find
from autotune.testing import ENVIRONMENT, FACTS, FakeLauncher
from benchmarks.race_power import Simulated, simulated

BUSY = HostInterference(run_queue_wait_share=0.4, foreign_cores=1.0)
SLIGHT = HostInterference(run_queue_wait_share=0.08, foreign_cores=1.0)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("seed", range(5))
def test_a_slowdown_of_three_percent_is_found_and_equal_ones_are_as_fast(seed, tmp_path):
    slower = simulated(tmp_path / "slower", [0.03], seed=seed)
    equal = simulated(tmp_path / "equal", [0.0], seed=seed)

    assert slower.verdict == "slower"
    assert slower.standings[1].ratio == pytest.approx(0.97, abs=0.03)
    assert equal.verdict in ("as fast", "faster")
    assert equal.standings[1].ratio == pytest.approx(1.0, abs=0.03)
    assert slower.ended == equal.ended == "decided"
    assert max(slower.seconds, equal.seconds) < 300


def test_each_contestant_has_a_verdict_of_its_own_and_the_worst_counts(tmp_path):
    result = simulated(tmp_path / "race", [0.05, -0.05, 0.0])

    assert [one.verdict for one in result.standings][:3] == [None, "slower", "faster"]
    assert result.verdict == "slower"
    assert result.standings[0].ratio is None
    assert result.standings[1].ratio_low < result.standings[1].ratio < result.standings[1].ratio_high < 1


@pytest.mark.parametrize(("slowdowns", "confidence"), [([0.05], 0.95), ([0.05, -0.05, 0.0], 1 - 0.05 / 3)])
def test_all_intervals_hold_at_once_with_95_percent(slowdowns, confidence, tmp_path):
    result = simulated(tmp_path / "race", slowdowns)

    rounds = Rounds([one.rounds for one in result.standings], 0)
    for at, one in enumerate(result.standings[1:], start=1):
        assert (one.ratio, one.ratio_low, one.ratio_high) == pytest.approx(rounds.ratio(at, 0, confidence))


def test_every_round_has_each_contestant_once_every_other_in_reverse(tmp_path):
    result = simulated(tmp_path / "race", [0.05, 0.1])

    first, last = result.standings[0].trials, result.standings[-1].trials
    assert (first[:3], last[:3]) == ((0, 5, 6), (2, 3, 8))
    assert len(list((tmp_path / "race" / "probes").glob("*/result.json"))) == result.probes


def test_the_result_is_kept_beside_its_probes_and_nothing_is_written_elsewhere(tmp_path):
    result = simulated(tmp_path / "race", [0.1])

    assert codec.read(tmp_path / "race" / "race.json", RaceResult) == result
    assert [path.name for path in tmp_path.iterdir()] == ["race"]
    with pytest.raises(StudyNotFound, match="it is a race"):
        find(tmp_path / "race")


def test_what_the_rounds_cannot_tell_in_time_is_undecided_and_the_budget_is_kept(tmp_path):
    result = simulated(tmp_path / "race", [0.02], noise=0.05, seconds=60)

    assert (result.verdict, result.ended) == ("undecided", "time")
    assert result.seconds <= 60


def test_a_budget_that_two_rounds_do_not_fit_into_is_told(tmp_path, capsys):
    machine = Simulated({"a.py": 0.0, "b.py": 0.0}, noise=0.004, seed=0)

    result = _race(tmp_path / "race", machine, RaceSettings(time_budget_seconds=8))

    said = capsys.readouterr().out
    assert result.seconds > 8
    assert said.count("The time budget of 8.0 s is too short: 2 rounds of all contestants always run") == 1
    assert said.index("is too short") < said.index("Round 1")  # the first probe showed it


class Inspected(Simulated):
    """To look at each contestant took three seconds; `events` has what was done and told."""

    def __init__(self, events):
        super().__init__({"a.py": 0.0, "b.py": 0.0}, noise=0.004, seed=0)
        self.events = events

    def run(self, request, folder):
        self.events.append(type(request))
        result = super().run(request, folder)
        return replace(result, elapsed_seconds=3.0) if isinstance(request, InspectRequest) else result


def test_a_budget_that_two_rounds_surely_do_not_fit_into_is_told_before_the_first_probe(tmp_path):
    events = []
    machine, settings = Inspected(events), RaceSettings(time_budget_seconds=10, folder=tmp_path / "race")

    race([_named("a.py"), _named("b.py")], settings, lambda _: machine, events.append, machine.clock, lambda _: None)

    (said,) = (one for one in events if isinstance(one, str) and "too short" in one)
    assert said == (
        "The time budget of 10 s is too short: 2 rounds of all contestants always run, or there is no interval. That "
        "takes about 17 s more, and 10 s are left. Use --time-budget 1m or more to have them in time."
    )
    assert events.index(said) < events.index(ProbeRequest)


@pytest.mark.parametrize("known", [2.0, 3.0, 20.0])
@pytest.mark.parametrize("seconds", [3, 8, 13, 18, 25, 40])
def test_where_contestants_may_leave_the_budget_is_kept(seconds, known, tmp_path, capsys):
    machine = Simulated({"a.py": 0.0, "b.py": 0.0}, noise=0.004, seed=0)
    settings = RaceSettings(time_budget_seconds=seconds, may_leave=True, folder=tmp_path / "race")

    result = race([_named("a.py"), _named("b.py")], settings, lambda _: machine, print, machine.clock,
                  lambda _: None, known_seconds=lambda _: known)  # fmt: skip

    assert result.seconds <= 1.1 * seconds
    assert bool(result.standings) == (tmp_path / "race" / "race.json").exists()
    assert bool(result.standings) == (seconds > 13 and known < 20)
    assert ("There is no time for 2 rounds of b.py" in capsys.readouterr().out) == (not result.standings)


def test_the_slowest_leave_first_by_what_is_known_of_them(tmp_path):
    machine = Simulated({"a.py": 0.0}, noise=0.004, seed=0)
    named = [_named("a.py"), *(_named("a.py").with_changed_values({"batch_size": size}) for size in (64, 128))]
    settings = RaceSettings(time_budget_seconds=30, may_leave=True, folder=tmp_path / "race")

    result = race(named, settings, lambda _: machine, print, machine.clock, lambda _: None,
                  known_seconds=lambda config: 30.0 if config.batch_size == 64 else 3.0)  # fmt: skip

    assert [one.label for one in result.standings] == ["a.py", "a.py with batch=128"]


def test_the_number_of_rounds_can_be_limited(tmp_path):
    machine = Simulated({"a.py": 0.0, "b.py": 0.02}, noise=0.05, seed=0)

    result = _race(tmp_path, machine, RaceSettings(rounds=3, time_budget_seconds=3000))

    assert result.ended == "rounds"
    assert [len(one.rounds) for one in result.standings] == [3, 3]


class Interference(Simulated):
    """There is interference in every third probe, and its instruments see it."""

    def __init__(self, *slowdowns, **noise):
        super().__init__(*slowdowns, **noise)
        self.count = itertools.count()

    def run(self, request, folder):
        result = super().run(request, folder)
        if not isinstance(request, ProbeRequest) or next(self.count) % 3:
            return result
        measured = result.measurement
        slow = tuple(1.6 * seconds for seconds in measured.step_seconds)
        return replace(result, measurement=replace(measured, step_seconds=slow, interference=BUSY))


def test_a_probe_with_interference_is_repeated_and_does_not_count(tmp_path):
    result = _race(tmp_path, Interference({"a.py": 0.0, "b.py": 0.0}, noise=0.004, seed=0))

    assert result.verdict in ("as fast", "faster")
    assert result.with_interference > 1
    assert result.standings[1].ratio == pytest.approx(1.0, abs=0.03)


class AllBusy(Simulated):
    """There is interference in every probe of these targets, and its instruments see it."""

    def __init__(self, *targets, seen=BUSY):
        super().__init__({"a.py": 0.0, "b.py": 0.4}, noise=0.004, seed=0)
        self.targets, self.seen = targets, seen

    def run(self, request, folder):
        result = super().run(request, folder)
        if not isinstance(request, ProbeRequest) or request.target not in self.targets:
            return result
        return replace(result, measurement=replace(result.measurement, interference=self.seen))


@pytest.mark.parametrize(
    ("targets", "seen", "verdict"),
    [
        (["a.py", "b.py"], BUSY, "undecided"),
        (["a.py", "b.py"], SLIGHT, "slower"),
        (["a.py"], BUSY, "undecided"),  # as a search: others kept it from the cores
        (["b.py"], BUSY, "undecided"),
        (["b.py"], SLIGHT, "slower"),
        ([], BUSY, "slower"),
    ],
)
def test_a_race_beside_others_that_keep_a_contestant_from_the_cores_is_undecided_and_says_why(
    targets, seen, verdict, tmp_path
):
    result = _race(tmp_path, AllBusy(*targets, seen=seen), RaceSettings(rounds=4, time_budget_seconds=3000))

    assert result.verdict == verdict
    assert result.standings[1].beside_others == (verdict == "undecided")
    assert ("from the cores in too many of the rounds that count" in " ".join(notes(result))) == (
        verdict == "undecided"
    )
    assert result.ended == ("rounds" if verdict == "undecided" else "decided")
    assert "More rounds may decide it" not in " ".join(notes(result))


def test_repeats_leave_time_for_the_rounds(tmp_path, capsys):
    machine = Interference({"a.py": 0.0, "b.py": 0.0}, noise=0.004, seed=0)

    result = _race(tmp_path, machine, RaceSettings(time_budget_seconds=25))

    assert len(result.standings[0].trials) == 2
    assert result.seconds <= 25
    assert "too short" not in capsys.readouterr().out


class Thrashing(Simulated):
    """The allocator of b.py retries."""

    def run(self, request, folder):
        result = super().run(request, folder)
        if request.target != "b.py" or not isinstance(request, ProbeRequest):
            return result
        memory = replace(result.measurement.memory, allocator_retries=3)
        return replace(result, measurement=replace(result.measurement, memory=memory))


def test_what_a_search_would_not_recommend_is_raced_all_the_same(tmp_path):
    assert _race(tmp_path, Thrashing({"a.py": 0.0, "b.py": 0.2}, noise=0.004, seed=0)).verdict == "slower"


class Failing(Simulated):
    """Probes of b.py end otherwise, in this order; those after them are as usual."""

    def __init__(self, *outcomes):
        super().__init__({"a.py": 0.0, "b.py": 0.0}, noise=0.004, seed=0)
        self.left = list(outcomes)

    def run(self, request, folder):
        result = super().run(request, folder)
        if request.target != "b.py" or not isinstance(request, ProbeRequest) or not self.left:
            return result
        failure = Failure(phase="measure", message="the disk went away", evidence="", traceback="of the user")
        return request.failed(self.left.pop(0), failure)


def test_an_accident_is_tried_once_more(tmp_path):
    assert _race(tmp_path, Failing(Outcome.CRASHED)).verdict in ("as fast", "faster")


def test_a_contestant_that_fails_ends_the_race_with_its_error(tmp_path):
    with pytest.raises(RaceFailed, match=r"b\.py failed in probe 1: .*the disk went away") as failed:
        _race(tmp_path, Failing(Outcome.USER_ERROR))

    assert failed.value.exit_code == 3
    assert failed.value.traceback == "of the user"
    assert "race-a/probes/0001/log.txt" in str(failed.value)


def test_a_contestant_that_fails_leaves_the_others_where_it_may(tmp_path, capsys):
    machine = Failing(Outcome.TIMEOUT)
    named = [_named("a.py"), _named("b.py"), _named("a.py").with_changed_values({"batch_size": 64})]
    settings = RaceSettings(may_leave=True, rounds=2)

    result = race(named, settings, lambda _: machine, print, machine.clock, lambda _: None)

    assert [one.label for one in result.standings] == ["a.py", "a.py with batch=64"]
    assert "b.py failed in probe 1: hung: the disk went away. It is left out." in capsys.readouterr().out


def test_a_contestant_that_cannot_even_start_is_named(tmp_path):
    def stop(request):
        return Outcome.USER_ERROR

    with pytest.raises(RaceFailed, match=r"a\.py does not train.*scripted"):
        _race(tmp_path, FakeLauncher(faults={InspectRequest: stop}))


def test_races_of_one_code_look_at_it_once_and_have_folders_of_their_own(tmp_path):
    named = [_named("a.py"), _named("a.py").with_changed_values({"batch_size": 64})]
    found = []
    for _ in range(2):
        machine = Simulated({"a.py": 0.0}, noise=0.004, seed=0)
        found.append(race(named, RaceSettings(), lambda _, at=machine: at, print, machine.clock, lambda _: None))

    assert [one.folder for one in found] == ["studies/race-a", "studies/race-a-2"]
    assert len(list((tmp_path / "studies" / "race-a" / "inspect").iterdir())) == 1
    assert found[0].standings[1].label == "a.py with batch=64"
    assert [one.global_batch_size for one in found[0].standings] == [32, 64]


class Recording(FakeLauncher):
    """It keeps what it was asked."""

    def __init__(self, **machine):
        super().__init__(**machine)
        self.asked = []

    def run(self, request, folder):
        self.asked.append(request)
        return super().run(request, folder)


def test_a_script_that_decides_most_by_itself_runs_with_the_settings_that_it_races():
    machine = Recording(facts=replace(FACTS, settable=("batch_size",)))
    named = [_named("a.py"), _named("a.py").with_changed_values({"batch_size": 64})]

    race(named, RaceSettings(rounds=2), lambda _: machine, print, machine.clock, lambda _: None)

    probes = [one for one in machine.asked if isinstance(one, ProbeRequest)]
    assert {one.config.batch_size for one in probes} == {32, 64}
    assert {one.settable for one in probes} == {("batch_size",)}


def test_what_goes_before_the_first_round_is_told():
    told, machine = [], FakeLauncher(faults={InspectRequest: lambda _: Outcome.USER_ERROR})

    with pytest.raises(RaceFailed):
        race([_named("a.py"), _named("b.py")], RaceSettings(), lambda _: machine, told.append)

    assert told == ["Taking one step of each contestant, to see that it trains."]


def test_that_git_checks_out_is_told_before_it_does(tmp_path):
    told = []
    subprocess.run(["git", "init", "-q"], check=True)
    settings = RaceSettings(baseline_commit="nowhere")

    with pytest.raises(UsageError, match="nowhere"):
        race([_named("a.py").at("nowhere"), _named("a.py")], settings, lambda _: FakeLauncher(), told.append)

    assert told == ["Checking out nowhere."]


def test_a_setting_without_effect_is_refused_and_leaves_nothing(tmp_path):
    held = replace(FACTS, settable=("batch_size",))
    named = [_named("a.py"), _named("a.py").with_changed_values({"num_workers": 2})]

    with pytest.raises(UsageError, match=r"num_workers=2 has no effect on a\.py"):
        race(named, RaceSettings(), lambda _: FakeLauncher(facts=held), print)

    assert list(tmp_path.iterdir()) == []


def test_a_setting_that_does_nothing_here_is_refused_with_the_knobs_own_reason(tmp_path):
    named = [_named("a.py"), _named("a.py").with_changed_values({"strategy": "fsdp"})]

    with pytest.raises(UsageError, match=r"strategy=fsdp has no effect on a\.py\. The reason: one rank trains alone\."):
        race(named, RaceSettings(), lambda _: FakeLauncher(facts=FACTS), print)


def test_a_setting_that_is_so_already_is_no_error(tmp_path):
    on_cpu = replace(ENVIRONMENT, device="cpu", device_name="Fake CPU", default_threads=4)
    named = [_named("a.py"), _named("a.py").with_changed_values({"num_threads": 4})]

    result = race(named, RaceSettings(), lambda _: FakeLauncher(environment=on_cpu), lambda text: None)

    assert result.standings[1].label.endswith("with threads=4")


def test_an_empty_folder_of_the_users_own_stays_empty_after_an_early_error(tmp_path):
    (tmp_path / "mine").mkdir()
    held = replace(FACTS, settable=("batch_size",))
    named = [_named("a.py"), _named("a.py").with_changed_values({"num_workers": 2})]

    with pytest.raises(UsageError, match="has no effect"):
        race(named, RaceSettings(folder=tmp_path / "mine"), lambda _: FakeLauncher(facts=held), print)

    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_command_that_says_micro_batch_and_global_batch_derives_the_accumulation():
    today = {"batch_size": 8, "gradient_accumulation_steps": 4}
    machine = FakeLauncher(facts=replace(FACTS, baseline=today, owns_loop=True))
    command = _named("-- python train.py --bs {batch_size=8} --total-batch-size 32")
    named = [command, command.with_changed_values({"batch_size": 16})]

    result = race(named, RaceSettings(rounds=2), lambda _: machine, print, machine.clock, lambda _: None)

    assert [one.config.gradient_accumulation_steps for one in result.standings] == [4, 2]
    assert [one.global_batch_size for one in result.standings] == [32, 32]


def test_a_folder_that_holds_something_is_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()

    with pytest.raises(StudyError, match="there already"):
        _race(tmp_path, FakeLauncher(), RaceSettings(folder=tmp_path / "mine"))

    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_file_in_the_way_of_the_folder_is_told_with_the_option_of_a_race(tmp_path):
    (tmp_path / "mine").touch()

    with pytest.raises(StudyError, match=r"mine is a file.*for a race with --folder"):
        _race(tmp_path, FakeLauncher(), RaceSettings(folder=tmp_path / "mine" / "race"))


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ((1.05, 1.01, 1.09), "faster"),
        ((1.05, 0.99, 1.12), "as fast"),
        ((0.99, 0.981, 0.999), "as fast"),  # surely slower, and surely by less than the tolerance
        ((0.97, 0.95, 0.99), "slower"),
        ((0.985, 0.975, 0.995), "undecided"),
        ((0.97, 0.93, 1.01), "undecided"),
    ],
)
def test_the_verdict_follows_from_ratio_and_interval(interval, expected):
    assert verdict_on(*interval, 0.02) == expected


@pytest.mark.parametrize("wrong", [{"tolerance": 0.0}, {"time_budget_seconds": -1.0}, {"rounds": 1}, {"device": "gpu"}])
def test_a_setting_that_cannot_be_meant_is_refused(wrong):
    with pytest.raises(UsageError):
        RaceSettings(**wrong)


def _named(target):
    return NamedTraining(label=target, target=target)


def _race(folder, machine, settings=None):
    settings = settings or RaceSettings()
    return race([_named("a.py"), _named("b.py")], settings, lambda _: machine, print, machine.clock, lambda _: None)


class Diverging(Simulated):
    """The second contestant's losses are no numbers."""

    def run(self, request, folder):
        result = super().run(request, folder)
        if not isinstance(request, ProbeRequest) or request.target != "b.py":
            return result
        return replace(result, measurement=replace(result.measurement, losses=(None,) * 10))


def test_losses_that_are_no_numbers_are_said_beside_the_speed(tmp_path):
    result = _race(tmp_path, Diverging({"a.py": 0.0, "b.py": -0.5}, noise=0.01, seed=0), RaceSettings(rounds=2))

    (told,) = [note for note in notes(result) if "losses" in note]
    assert told == "b.py is unstable: 10 of 10 losses are not finite. How fast it trains says little."
    assert codec.read(next(tmp_path.rglob("race.json")), RaceResult) == result
