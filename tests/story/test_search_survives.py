"""Stories of searches in which something goes wrong, and of what they still come to."""

import shutil
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from autotune import interrupts
from autotune.core import codec
from autotune.core.codes import Code
from autotune.core.records import SEARCH_PURPOSES, Limit
from autotune.core.requests import InspectRequest, ProbeRequest
from autotune.core.results import Outcome
from autotune.errors import EnvironmentUnfit, NoRecommendation, StudyError, StudyNotFound, TargetError
from autotune.launch.base import LOG, REQUEST, RESULT
from autotune.memory.records import ShapeRun, ShapeRunRequest
from autotune.sampler.encoding import Encoding
from autotune.study import disk
from autotune.study.lock import Lock
from autotune.study.store import NUMBER, Store
from autotune.study.view import load_view
from autotune.targets.commands.hygiene import OUTPUT_FOLDER
from autotune.testing import FakeLauncher, Machine
from tests.worlds import Interrupted, Listener, config, declared, environment, facts, searched, space

LONG = 1e6
PAIR = {"amp_dtype": Limit(values=(None, "bfloat16")), "num_workers": Limit(values=(0, 4))}
PAIRED = {"tune": ("amp_dtype", "num_workers"), "limits": PAIR}
SMALL = {**PAIRED, "time_budget_seconds": LONG}


def _faulty(fault, **options):
    return FakeLauncher(faults={ProbeRequest: fault}, facts=declared(), **options)


def _always(outcome):
    return lambda request: outcome


def _in_confirmation(outcome, **values):
    """A fault of one configuration that shows only when it is measured again."""
    return lambda request: (
        outcome
        if request.purpose == "confirm" and all(request.config[name] == value for name, value in values.items())
        else None
    )


def test_a_finalist_that_fails_in_confirmation_gives_way_to_the_next(tmp_path):
    fault = _in_confirmation(Outcome.OOM_DEVICE, amp_dtype="bfloat16", num_workers=4)

    answer = searched(tmp_path, _faulty(fault), **SMALL)

    assert (answer.params["amp_dtype"], answer.params["num_workers"]) == (None, 4)
    lost = next(other for other in answer.runners_up if other.samples_per_second is None)
    assert (lost.config["amp_dtype"], lost.config["num_workers"]) == ("bfloat16", 4)
    assert "out of memory" in lost.reason.text


def test_what_failed_in_confirmation_does_not_lead_again_after_a_resume(tmp_path):
    searched(tmp_path, _faulty(_in_confirmation(Outcome.OOM_DEVICE, amp_dtype="bfloat16", num_workers=4)), **SMALL)

    answer = searched(tmp_path, FakeLauncher(facts=declared()), **SMALL)

    assert (answer.params["amp_dtype"], answer.params["num_workers"]) != ("bfloat16", 4)


def test_if_all_fail_in_confirmation_there_is_no_recommendation(tmp_path):
    with pytest.raises(NoRecommendation, match=r"failed when re-measured: .*hung.* overloaded"):
        searched(tmp_path, _faulty(_in_confirmation(Outcome.TIMEOUT)), **SMALL)

    assert not (tmp_path / disk.BEST).exists()


def test_if_nothing_is_usable_the_dominating_failure_is_named(tmp_path):
    def fault(request):
        return Outcome.OOM_DEVICE if request.config["amp_dtype"] is None else Outcome.TIMEOUT

    with pytest.raises(
        NoRecommendation, match=r"None of \d+ probes was usable\. Most often: hung: .* --failed`"
    ) as caught:
        searched(tmp_path, _faulty(fault), probes=10, time_budget_seconds=LONG)

    assert caught.value.exit_code == 1


def test_a_smaller_batch_is_advised_only_where_memory_was_the_matter(tmp_path):
    full = _faulty(_always(Outcome.OOM_DEVICE))

    with pytest.raises(NoRecommendation, match=r"16 GiB\. Look with .*--failed`; a smaller --batch or .* may help\.$"):
        searched(tmp_path, full, probes=3, time_budget_seconds=LONG)


@pytest.mark.parametrize("outcome", [Outcome.USER_ERROR, Outcome.INVALID_CONFIG, Outcome.TIMEOUT, Outcome.CRASHED])
def test_a_baseline_that_does_not_run_stops_the_search_at_once(tmp_path, outcome):
    listener = Listener()

    with pytest.raises(TargetError, match="Full log:"):
        searched(tmp_path, _faulty(_always(outcome)), listener, **SMALL)

    assert len(listener.trials) == (2 if outcome is Outcome.CRASHED else 1)


@pytest.mark.parametrize("outcome", [Outcome.USER_ERROR, Outcome.TIMEOUT, Outcome.CRASHED])
def test_a_mended_target_is_given_its_baseline_by_the_same_command(tmp_path, outcome):
    with pytest.raises(TargetError):
        searched(tmp_path, _faulty(_always(outcome)), **SMALL)
    listener = Listener()

    answer = searched(tmp_path, FakeLauncher(facts=declared()), listener, **SMALL)

    assert listener.trials[0].purpose == "baseline"
    assert answer.baseline_samples_per_second is not None
    assert answer.speedup > 1


def test_a_search_that_ends_before_its_first_probe_says_why_to_whoever_asks_later(tmp_path):
    folder = tmp_path / "study"
    bad = FakeLauncher(faults={InspectRequest: lambda request: Outcome.USER_ERROR})

    with pytest.raises(TargetError):
        searched(folder, bad, **SMALL)

    assert (folder / ".gitignore").read_text() == disk.IGNORED
    with pytest.raises(StudyNotFound, match=r"ended before the first probe: a scripted user-error.*log\.txt"):
        disk.find(folder)
    with pytest.raises(KeyboardInterrupt):
        searched(folder, FakeLauncher(results={InspectRequest: _interrupted}), **SMALL)
    assert not folder.exists()


def _interrupted(request):
    raise KeyboardInterrupt


def test_an_interrupt_that_python_swallowed_ends_the_search_before_it_confirms(tmp_path, monkeypatch):
    monkeypatch.setattr(interrupts, "_is_asked", True)

    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path, FakeLauncher(facts=declared()), **SMALL)

    assert not (tmp_path / disk.BEST).exists()
    assert {trial.purpose for trial in load_view(tmp_path).trials} <= {"baseline", *SEARCH_PURPOSES}


@pytest.mark.parametrize("at", [1, 3])
def test_an_unfit_machine_stops_the_search_and_nothing_is_blamed_on_the_configuration(tmp_path, at):
    counted = iter(range(1, 1000))

    with pytest.raises(EnvironmentUnfit):
        searched(tmp_path, _faulty(lambda request: Outcome.ENVIRONMENT if next(counted) == at else None), **SMALL)
    listener = Listener()
    answer = searched(tmp_path, FakeLauncher(facts=declared()), listener, **SMALL)

    tried = {t.config for t in load_view(tmp_path).trials if t.purpose in SEARCH_PURPOSES and t.result.measurement}
    assert len(tried) == 4
    assert answer.baseline_samples_per_second is not None


def test_an_error_of_the_users_code_in_one_configuration_costs_that_probe_only(tmp_path):
    def fault(request):
        return Outcome.USER_ERROR if request.config["amp_dtype"] == "bfloat16" else None

    answer = searched(tmp_path, _faulty(fault), **SMALL)

    assert answer.params["amp_dtype"] is None
    assert answer.params["num_workers"] == 4


def test_a_crash_is_tried_once_more_and_then_believed(tmp_path):
    crashed = []

    def fault(request):
        if request.config["amp_dtype"] == "bfloat16" and request.config["num_workers"] == 0:
            crashed.append(request.number)
            return Outcome.CRASHED
        return None

    listener = Listener()
    searched(tmp_path, _faulty(fault), listener, **SMALL)

    assert len(crashed) == 2
    assert crashed[1] == crashed[0] + 1
    assert any(f"Probe {crashed[0]} crashed: trying once more." == note for note in listener.notes)


def test_an_accident_that_does_not_repeat_keeps_nothing_from_winning(tmp_path):
    crashed = []

    def fault(request):
        if request.config["amp_dtype"] == "bfloat16" and request.config["num_workers"] == 4 and not crashed:
            crashed.append(request.number)
            return Outcome.CRASHED
        return None

    answer = searched(tmp_path, _faulty(fault), **SMALL)

    assert crashed
    assert (answer.params["amp_dtype"], answer.params["num_workers"]) == ("bfloat16", 4)


def test_a_baseline_that_does_not_fit_is_no_obstacle(tmp_path):
    launcher = FakeLauncher(facts=facts(baseline={"batch_size": 4096}))

    answer = searched(tmp_path, launcher, probes=25, time_budget_seconds=LONG)

    assert (answer.speedup, answer.baseline_samples_per_second) == (None, None)
    assert answer.global_batch_size == 4096
    assert answer.params["batch_size"] < 4096


def test_out_of_memory_at_the_headroom_is_never_recommended(tmp_path):
    launcher = FakeLauncher(machine=Machine(noise_between_probes=0.0))

    answer = searched(tmp_path, launcher, probes=40, time_budget_seconds=LONG, headroom=0.3)

    assert answer.headroom_fraction >= 0.3
    view = load_view(tmp_path)
    assert any(trial.result.measurement and not view.verdict(trial).feasible for trial in view.trials)


def test_a_resumed_search_goes_on_numbering_and_repeats_nothing(tmp_path):
    first, second = Listener(), Listener()
    searched(tmp_path, FakeLauncher(facts=declared()), first, probes=8, time_budget_seconds=LONG)

    searched(tmp_path, FakeLauncher(facts=declared()), second, probes=8, time_budget_seconds=LONG)

    assert second.trials[0].number == first.trials[-1].number + 1
    assert all(trial.purpose != "baseline" for trial in second.trials)
    tried = [trial.config for trial in (*first.trials, *second.trials) if trial.purpose in ("baseline", "search")]
    assert len(tried) == len(set(tried)) == 17
    assert "(resumed)" in second.lines[0] and "(new)" in first.lines[0]


def test_a_study_goes_on_with_code_that_changed_and_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target, first, second = "-- python train.py --bs {batch_size=64}", Listener(), Listener()
    Path("train.py").write_text("WORK = 2\n")
    searched(tmp_path / "study", FakeLauncher(facts=declared()), first, target=target, **SMALL)
    again = searched(tmp_path / "study", FakeLauncher(facts=declared()), target=target, **SMALL)
    Path("train.py").write_text("WORK = 20\n")

    answer = searched(tmp_path / "study", FakeLauncher(facts=declared()), second, target=target, **SMALL)

    said = "train.py changed since this study began: its probes may have run other code than today's."
    assert "(resumed)" in second.lines[0]
    assert said in second.notes[0]
    assert Code.CODE_CHANGED in [one.code for one in answer.warnings]
    assert Code.CODE_CHANGED not in [one.code for one in again.warnings]
    assert not any("changed since" in note for note in first.notes)


@pytest.mark.parametrize("target", ["train.py", "-- python train.py --bs {batch_size=64}"])
def test_a_study_goes_on_with_imported_code_that_changed_and_says_so(tmp_path, monkeypatch, target):
    monkeypatch.chdir(tmp_path)
    listener = Listener()
    Path("train.py").write_text("import net\n")
    Path("net.py").write_text("WORK = 2\n")
    searched(tmp_path / "study", FakeLauncher(facts=declared()), target=target, **SMALL)
    again = searched(tmp_path / "study", FakeLauncher(facts=declared()), target=target, **SMALL)
    Path("net.py").write_text("WORK = 20\n")

    answer = searched(tmp_path / "study", FakeLauncher(facts=declared()), listener, target=target, **SMALL)

    assert "(resumed)" in listener.lines[0]
    assert "train.py, or rather what it imports (net), changed since this study began" in listener.notes[0]
    assert Code.CODE_CHANGED in [one.code for one in answer.warnings]
    assert Code.CODE_CHANGED not in [one.code for one in again.warnings]


@pytest.mark.parametrize("ended", ["by Ctrl-C", "by a mistake"])
def test_code_that_changed_before_a_first_probe_counts_is_todays_code(tmp_path, monkeypatch, ended):
    monkeypatch.chdir(tmp_path)
    study, listener, known = tmp_path / "study", Listener(), {"facts": declared()}
    Path("train.py").write_text("import net\n")
    Path("net.py").write_text("WORK = 2\n")
    mistake = FakeLauncher(faults={ProbeRequest: lambda asked: Outcome.USER_ERROR}, **known)
    with pytest.raises((KeyboardInterrupt, TargetError)):
        searched(study, mistake if ended == "by a mistake" else Interrupted(1, **known), target="train.py", **SMALL)
    Path("net.py").write_text("WORK = 20\n")

    answer = searched(study, FakeLauncher(**known), listener, target="train.py", **SMALL)

    assert "(resumed)" in listener.lines[0]
    assert not any("changed since" in note for note in listener.notes)
    assert Code.CODE_CHANGED not in [one.code for one in answer.warnings]
    assert disk.read_request(study).target_digest == answer.target_digest
    Path("net.py").write_text("WORK = 200\n")
    later = searched(study, FakeLauncher(**known), target="train.py", **SMALL)
    assert Code.CODE_CHANGED in [one.code for one in later.warnings]


@pytest.mark.parametrize("left", ["a shape run", "a probe that was killed", "an answer"])
def test_what_is_left_of_a_study_without_probes_is_of_the_code_as_it_was(tmp_path, monkeypatch, left):
    monkeypatch.chdir(tmp_path)
    study, listener, launcher = tmp_path / "study", Listener(), FakeLauncher(facts=declared())
    Path("train.py").write_text("WORK = 2\n")
    searched(study, launcher, target="train.py", **SMALL)
    for result in (study / disk.PROBES).glob(f"*/{RESULT}"):
        result.unlink()
        if left != "a probe that was killed":
            (result.parent / REQUEST).unlink()
    shutil.rmtree(study / ShapeRunRequest.FOLDER, ignore_errors=True)
    if left == "a shape run":
        place = disk.make(study / ShapeRunRequest.FOLDER / "0000")
        codec.write(
            place / REQUEST, ShapeRunRequest(target="train.py", config=config(), arms=(), batches=(), device="cpu")
        )
        codec.write(place / RESULT, ShapeRun(outcome=Outcome.OK))
    if left != "an answer":
        (study / disk.BEST).unlink()
    Path("train.py").write_text("WORK = 20\n")

    searched(study, launcher, listener, target="train.py", **SMALL)

    assert any("changed since" in note for note in listener.notes)


def test_a_study_goes_on_without_a_word_of_change_from_another_folder_or_where_nothing_is_found(tmp_path, monkeypatch):
    for folder in ("lib", "scripts"):
        (tmp_path / folder).mkdir()
    (tmp_path / "lib" / "net.py").write_text("WORK = 2\n")
    target = tmp_path / "scripts" / "train.py"
    target.write_text("import lib.net\n")
    with monkeypatch.context() as there:
        there.setattr(sys, "path", [sys.path[0], str(tmp_path), *sys.path[1:]])
        there.chdir(tmp_path)
        searched(tmp_path / "study", FakeLauncher(facts=declared()), target=str(target), **SMALL)
        there.chdir(tmp_path / "scripts")
        elsewhere = searched(tmp_path / "study", FakeLauncher(facts=declared()), target=str(target), **SMALL)
    unfound = searched(tmp_path / "study", FakeLauncher(facts=declared()), target=str(target), **SMALL)

    assert "+" in disk.read_request(tmp_path / "study").target_digest
    assert Code.CODE_CHANGED not in [one.code for one in (*elsewhere.warnings, *unfound.warnings)]


def test_a_study_goes_on_where_some_of_what_is_imported_is_not_found(tmp_path, monkeypatch):
    study, target = tmp_path / "study", tmp_path / "scripts" / "train.py"
    for place, text in (("lib/net.py", ""), ("scripts/near.py", ""), ("scripts/train.py", "import lib.net, near\n")):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(text or "WORK = 2\n")
    with monkeypatch.context() as there:
        there.setattr(sys, "path", [sys.path[0], str(tmp_path), *sys.path[1:]])
        searched(study, FakeLauncher(facts=declared()), target=str(target), **SMALL)

    unfound = searched(study, FakeLauncher(facts=declared()), target=str(target), **SMALL)
    (tmp_path / "scripts" / "near.py").write_text("WORK = 20\n")
    changed = searched(study, FakeLauncher(facts=declared()), target=str(target), **SMALL)

    assert Code.CODE_CHANGED not in [one.code for one in unfound.warnings]
    assert Code.CODE_CHANGED in [one.code for one in changed.warnings]


@pytest.mark.parametrize("words", ["{}", "-- python {} --bs {{batch_size=64}}"])
def test_a_study_goes_on_from_another_folder_where_its_target_is_spelled_otherwise(tmp_path, monkeypatch, words):
    study, listener = tmp_path / "runs" / "study", Listener()
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "train.py").write_text("WORK = 2\n")
    monkeypatch.chdir(tmp_path)
    there = words.format("examples/train.py")
    first = searched(study, FakeLauncher(facts=declared()), target=there, time_budget_seconds=600, **PAIRED)
    monkeypatch.chdir("examples")

    noisy = FakeLauncher(facts=declared(), machine=Machine(noise_between_probes=0.05))
    again = searched(study, noisy, listener, target=words.format("train.py"), time_budget_seconds=2, **PAIRED)

    assert "(resumed)" in listener.lines[0]
    assert disk.read_request(study).target == there
    assert (again.params, again.rounds) == (first.params, first.rounds)
    assert any(note.startswith("The earlier recommendation is kept") for note in listener.notes)
    assert Code.CODE_CHANGED not in [one.code for one in again.warnings]


def test_a_file_of_the_same_name_that_lies_elsewhere_and_differs_is_another_target(tmp_path, monkeypatch):
    for folder in ("there", "here"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(f"WORK = '{folder}'\n")
    monkeypatch.chdir(tmp_path)
    searched(tmp_path / "study", FakeLauncher(facts=declared()), target="there/train.py", **SMALL)
    monkeypatch.chdir("here")

    with pytest.raises(StudyError, match=r"the target was there/train\.py, is \./train\.py"):
        searched(tmp_path / "study", FakeLauncher(facts=declared()), target="./train.py", **SMALL)


def test_a_study_of_a_version_that_knew_the_file_alone_goes_on_and_compares_that(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study, listener = tmp_path / "study", Listener()
    Path("train.py").write_text("import net\n")
    Path("net.py").write_text("WORK = 2\n")
    searched(study, FakeLauncher(facts=declared()), target="train.py", **SMALL)
    begun = disk.read_request(study)
    codec.write(study / disk.STUDY, replace(begun, target_digest=begun.target_digest.partition("+")[0]))

    same = searched(study, FakeLauncher(facts=declared()), listener, target="train.py", **SMALL)
    Path("train.py").write_text("import net  # changed\n")
    changed = searched(study, FakeLauncher(facts=declared()), target="train.py", **SMALL)

    assert "(resumed)" in listener.lines[0]
    assert Code.CODE_CHANGED not in [one.code for one in same.warnings]
    assert Code.CODE_CHANGED in [one.code for one in changed.warnings]


def test_a_study_is_not_continued_on_another_machine(tmp_path):
    searched(tmp_path, FakeLauncher(facts=declared()), **SMALL)
    before = len(load_view(tmp_path).trials)
    other = FakeLauncher(facts=declared(), environment=environment(device_name="Other GPU"))
    with pytest.raises(StudyError, match="the machine's device name was Fake GPU 16GB, is Other GPU"):
        searched(tmp_path, other, **SMALL)

    assert len(load_view(tmp_path).trials) == before
    searched(tmp_path, other, mode="fresh", **SMALL)
    assert len(load_view(tmp_path.with_name(f"{tmp_path.name}.old-1")).trials) == before


@pytest.mark.parametrize("at", [1, 2, 4, 7])
def test_an_interrupted_search_keeps_all_but_the_running_probe_and_goes_on(tmp_path, at):
    """At the baseline, in the search and in the confirmation."""
    listener = Listener()
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path, Interrupted(at, facts=declared()), listener, **SMALL)

    view, command = listener.stopped
    assert len(view.trials) == len(listener.trials) == at - 1
    assert command == f"autotune search model.py --study {tmp_path} --resume"
    assert listener.answer is None
    Lock(tmp_path).release()

    again = Listener()
    answer = searched(tmp_path, FakeLauncher(facts=declared()), again, mode="resume", **SMALL)

    assert again.trials[0].number == at
    tried = [t.config for t in (*listener.trials, *again.trials) if t.purpose in SEARCH_PURPOSES]
    assert len(tried) == len(set(tried)) == 4
    assert answer.params["amp_dtype"] == "bfloat16"


def test_an_interrupted_probe_does_not_stay_open_in_the_database(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path, Interrupted(3, facts=declared()), **SMALL)

    store = Store(tmp_path, load_view(tmp_path).request, Encoding(_space_of(load_view(tmp_path))), needs_complete=False)
    states = [frozen.state.name for frozen in store.trials()]
    store.close()

    assert states == ["COMPLETE", "COMPLETE", "FAIL"]


def test_an_interrupt_is_not_held_against_the_configuration_that_was_running(tmp_path):
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            searched(tmp_path, Interrupted(2, facts=declared()), **SMALL)
    listener = Listener()

    searched(tmp_path, FakeLauncher(facts=declared()), listener, **SMALL)

    tried = {trial.config for trial in load_view(tmp_path).trials}
    assert tried >= set(_space_of(load_view(tmp_path)).configs)


def test_a_configuration_that_twice_took_the_machine_down_is_left_alone(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path, Interrupted(2, facts=declared()), **SMALL)
    view = load_view(tmp_path)
    poison = next(where for where in _space_of(view).configs if where not in {trial.config for trial in view.trials})
    for _ in range(2):
        number, place = disk.new_attempt(tmp_path, ProbeRequest)
        codec.write(place / REQUEST, ProbeRequest(target="model.py", config=poison, device="cuda:0", number=number))
    listener = Listener()

    searched(tmp_path, FakeLauncher(facts=declared()), listener, **SMALL)

    assert poison not in {trial.config for trial in listener.trials}


def test_after_any_search_the_database_says_what_the_folders_say(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path, Interrupted(9), probes=20, time_budget_seconds=LONG)
    searched(tmp_path, FakeLauncher(), probes=10, time_budget_seconds=LONG)

    view = load_view(tmp_path)
    store = Store(tmp_path, view.request, Encoding(_space_of(view)), needs_complete=False)
    told = sorted(t.user_attrs[NUMBER] for t in store.trials() if t.state.name in ("COMPLETE", "PRUNED"))
    running = [t for t in store.trials() if t.state.name == "RUNNING"]
    store.close()

    ablated = {t.config: t.number for t in reversed(view.trials) if t.purpose == "ablation"}
    explored = {t.config: t.number for t in view.trials if t.purpose in ("baseline", "search")}
    first = [number for config, number in ablated.items() if config not in explored]
    assert told == sorted([*explored.values(), *first])
    assert running == []


@pytest.mark.parametrize("loss", ["delete", "damage"])
def test_a_lost_or_damaged_database_costs_no_probe(tmp_path, loss):
    searched(tmp_path, FakeLauncher(facts=declared()), probes=8, time_budget_seconds=LONG)
    database = tmp_path / disk.DATABASE
    if loss == "damage":
        database.write_bytes(b"not a database" * 100)
        with pytest.raises(StudyError, match=r"move study\.db away"):
            searched(tmp_path, FakeLauncher(facts=declared()), probes=8, time_budget_seconds=LONG)
    database.rename(tmp_path / "old.db")
    listener = Listener()

    searched(tmp_path, FakeLauncher(facts=declared()), listener, probes=8, time_budget_seconds=LONG)

    tried = [trial.config for trial in load_view(tmp_path).trials if trial.purpose in ("baseline", "search")]
    assert len(tried) == len(set(tried)) == 17


@pytest.mark.parametrize("loss", ["delete", "damage"])
def test_a_lost_or_damaged_study_json_costs_no_probe(tmp_path, loss):
    searched(tmp_path, FakeLauncher(facts=declared()), probes=4, time_budget_seconds=LONG)
    asked, before = disk.read_request(tmp_path), len(load_view(tmp_path).trials)
    if loss == "damage":
        (tmp_path / disk.STUDY).write_text('{"cut')
        with pytest.raises(StudyError, match=r"study\.json is not a readable .* Move it away"):
            searched(tmp_path, FakeLauncher(facts=declared(), environment=environment(device_name="Other GPU")))
    (tmp_path / disk.STUDY).unlink()
    listener = Listener()

    searched(tmp_path, FakeLauncher(facts=declared()), listener, probes=2, time_budget_seconds=LONG)

    assert listener.trials[0].number == before
    assert disk.read_request(tmp_path) == replace(asked, created_at=disk.read_request(tmp_path).created_at)
    assert listener.notes[0].startswith(
        f"study.json was missing: rebuilt from the inspection and the requests of {before} probe"
    )


@pytest.mark.parametrize(
    ("changes", "settings", "said"),
    [
        ({"facts": declared(), "environment": environment(device_name="Other GPU")}, {}, "was Fake GPU 16GB, is Other"),
        ({"facts": declared()}, {"target": "other.py"}, "target was model.py, is other.py"),
        (
            {"facts": declared()},
            {"baseline": {"batch_size": 32}},
            r"the baseline's batch_size was 64, is 32\. Give the earlier settings",
        ),
        ({"facts": facts(parameter_count=7, baseline={"batch_size": 64})}, {}, "the target's parameter count was"),
    ],
)
def test_a_lost_study_json_is_not_rebuilt_for_what_cannot_be_compared(tmp_path, changes, settings, said):
    searched(tmp_path, FakeLauncher(facts=declared()), probes=1, time_budget_seconds=LONG)
    before = len(load_view(tmp_path).trials)

    for _ in range(2):  # the attempt itself leaves nothing that the next would take for the study's own
        (tmp_path / disk.STUDY).unlink(missing_ok=True)
        with pytest.raises(StudyError, match=said):
            searched(tmp_path, FakeLauncher(**changes), **settings)

    assert len(disk.read_trials(tmp_path)) == before


def test_what_a_killed_search_left_of_its_commands_is_taken_away(tmp_path):
    searched(tmp_path, FakeLauncher(facts=declared()), **SMALL)
    left = [tmp_path / disk.INSPECT / OUTPUT_FOLDER, tmp_path / disk.PROBES / "0001" / OUTPUT_FOLDER]
    mine = tmp_path / "mine" / OUTPUT_FOLDER
    for place in (*left, mine):
        (place / "checkpoint").mkdir(parents=True)
    for place in left:
        (place.parent / LOG).touch()

    searched(tmp_path, FakeLauncher(facts=declared()), **SMALL)

    assert [place for place in (*left, mine) if place.exists()] == [mine]


def test_a_damaged_inspection_matters_only_where_study_json_is_lost(tmp_path):
    searched(tmp_path, FakeLauncher(facts=declared()), probes=1, time_budget_seconds=LONG)
    (tmp_path / disk.INSPECT / RESULT).write_text('{"cut')
    before = len(load_view(tmp_path).trials)

    searched(tmp_path, FakeLauncher(facts=declared()), probes=2, time_budget_seconds=LONG)

    assert len(load_view(tmp_path).trials) > before


def test_what_crashed_twice_is_left_alone_even_when_the_database_was_lost(tmp_path):
    def crash(request):
        bad = request.purpose == "search" and request.config["amp_dtype"] == "bfloat16"
        return Outcome.CRASHED if bad else None

    searched(tmp_path, _faulty(crash), **SMALL)
    crashed = {t.config for t in load_view(tmp_path).trials if t.result.outcome is Outcome.CRASHED}
    (tmp_path / disk.DATABASE).rename(tmp_path / "old.db")
    listener = Listener()

    searched(tmp_path, FakeLauncher(facts=declared()), listener, **SMALL)

    assert crashed
    assert not crashed & {trial.config for trial in listener.trials}


def _space_of(view):
    return space(view.request.goal, view.request.baseline, view.request.facts, view.request.environment)


def test_only_the_probes_of_the_space_and_its_baseline_are_run_before_the_answer(tmp_path):
    narrow = {"batch_size": Limit(values=(16, 32)), "num_workers": Limit(values=(4,))}

    searched(tmp_path, FakeLauncher(facts=declared()), limits=narrow, time_budget_seconds=LONG)

    view = load_view(tmp_path)
    allowed = {*_space_of(view).configs, config(batch_size=64)}
    assert {trial.config for trial in view.trials if trial.purpose != "ablation"} == allowed
