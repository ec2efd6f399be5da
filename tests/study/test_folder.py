"""A study on disk, read by anybody."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from autotune.core import codec
from autotune.core.requests import ProbeRequest
from autotune.core.results import Inspection, Outcome
from autotune.errors import StudyError, StudyNotFound
from autotune.knobs import defaults
from autotune.launch.base import LOG, REQUEST, RESULT
from autotune.study import disk
from autotune.study.lock import Lock
from autotune.study.view import load_view
from tests.reporting import recommendation
from tests.worlds import config, failed, measured, study_request


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _study(folder):
    folder.mkdir(parents=True)
    codec.write(folder / disk.STUDY, study_request())
    return folder


def _begin(folder, result=None, **values):
    number, place = disk.new_attempt(folder, ProbeRequest)
    codec.write(place / REQUEST, ProbeRequest(target="m.py", config=config(**values), device="cpu", number=number))
    if result is not None:
        codec.write(place / RESULT, result)
    return number


def test_probes_are_numbered_without_reusing_a_number(tmp_path):
    numbers = [_begin(tmp_path, measured()), _begin(tmp_path), _begin(tmp_path, failed())]

    assert numbers == [0, 1, 2]
    assert (tmp_path / "probes" / "0002").is_dir()


def test_a_probe_of_an_ablation_is_read_by_its_former_name_too(tmp_path):
    _begin(tmp_path, measured())
    path = tmp_path / "probes" / "0000" / REQUEST
    path.write_text(path.read_text().replace('"search"', '"worth"'))

    assert [trial.purpose for trial in disk.read_trials(tmp_path)] == ["ablation"]


def test_a_folder_of_an_earlier_version_is_ours_too(tmp_path):
    (_study(tmp_path / "old") / "goodput").mkdir()

    assert disk.is_ours(tmp_path / "old")


def test_finished_probes_are_read_in_order_and_unfinished_ones_are_orphans(tmp_path):
    _begin(tmp_path, measured(), batch_size=8)
    _begin(tmp_path, batch_size=16)
    _begin(tmp_path, failed(), batch_size=32)
    disk.new_attempt(tmp_path, ProbeRequest)  # a number was taken, and nothing begun

    assert [(t.number, t.config.batch_size) for t in disk.read_trials(tmp_path)] == [(0, 8), (2, 32)]
    assert [orphan.batch_size for orphan in disk.read_orphans(tmp_path)] == [16]


def test_a_measurement_whose_launcher_died_before_it_added_what_it_saw_was_never_made(tmp_path):
    _begin(tmp_path, measured(), batch_size=8)
    _begin(tmp_path, msgspec.structs.replace(measured(), elapsed_seconds=0.0), batch_size=16)

    assert [t.config.batch_size for t in disk.read_trials(tmp_path)] == [8]
    assert disk.read_orphans(tmp_path) == ()  # the configuration is not to blame


def test_the_ten_thousandth_probe_comes_last(tmp_path):
    for number in (10000, 9999):
        place = disk.make(tmp_path / "probes" / str(number))
        codec.write(place / REQUEST, ProbeRequest(target="m.py", config=config(), device="cpu", number=number))
        codec.write(place / RESULT, measured())

    assert [t.number for t in disk.read_trials(tmp_path)] == [9999, 10000]
    assert disk.new_attempt(tmp_path, ProbeRequest)[0] == 10001


def test_the_log_of_a_probe_is_in_its_folder(tmp_path):
    number, place = disk.new_attempt(tmp_path, ProbeRequest)

    assert disk.log_of(tmp_path, number) == place / LOG


@pytest.mark.parametrize("name", [REQUEST, RESULT])
def test_a_damaged_file_is_named(tmp_path, name):
    _begin(tmp_path, measured())
    (tmp_path / "probes" / "0000" / name).write_text("{")

    with pytest.raises(StudyError, match=name):
        disk.read_trials(tmp_path)


def test_a_result_without_its_request_is_damage_too(tmp_path):
    _begin(tmp_path, measured())
    (tmp_path / "probes" / "0000" / REQUEST).unlink()

    with pytest.raises(StudyError, match=r"0000 has a result\.json but no request\.json, .* probably .* Copy it again"):
        disk.read_trials(tmp_path)


def test_a_study_is_found_by_path_or_by_name(home):
    made = _study(home / "studies" / "resnet")

    assert disk.find("resnet").resolve() == made
    assert disk.find(made) == made


def test_without_a_name_the_newest_study_is_meant(home):
    for age, name in ((10, "new"), (1000, "old")):
        study = _study(home / "studies" / name) / disk.STUDY
        os.utime(study, (1e9 - age, 1e9 - age))

    assert disk.find(None).name == "new"


def test_the_newest_study_is_so_by_its_own_date_whatever_the_date_of_its_files(home):
    for name, moment in (("new", "2026-11-22"), ("old", "2025-01-01")):  # written in this order
        codec.write(_study(home / "studies" / name) / disk.STUDY, study_request(created_at=f"{moment}T10:00:00+00:00"))
    codec.write(disk.make(home / "studies" / "kept") / disk.BEST, recommendation(measured_at="2026-11-21"))

    assert disk.find(None).name == "new"


def test_a_study_of_which_only_the_recommendation_was_kept_is_found(home):
    kept = disk.make(home / "studies" / "resnet")
    (kept / disk.BEST).write_text("{}")

    assert disk.find("resnet").name == "resnet"
    assert disk.find(None).name == "resnet"


def test_what_is_not_found_lists_what_there_is(home):
    _study(home / "studies" / "resnet")
    (home / "empty").mkdir()

    with pytest.raises(StudyNotFound, match=r"lstm does not exist\. It was .* Studies here: studies/resnet\. Name one"):
        disk.find("lstm")
    with pytest.raises(
        StudyNotFound, match=r"empty is not a study: it has no .* It is empty, .* elsewhere\. Studies here"
    ):
        disk.find("empty")


@pytest.mark.parametrize("place", ["nan", "studies/nan"])
def test_a_study_that_is_named_with_a_wrong_folder_is_proposed(home, place):
    _study(home / place)

    with pytest.raises(StudyNotFound, match=rf"s/nan does not exist\. .*\. Did you mean {place}\?"):
        disk.find("runs/nan" if place == "studies/nan" else "studies/nan")


@pytest.mark.parametrize("name", ["studies/resnet/best.json", "studies/resnet/probes", "resnet.py", "resnt"])
def test_a_part_of_a_study_its_target_and_a_typing_error_lead_to_the_study(home, name):
    _study(home / "studies" / "resnet")
    (home / "resnet.py").touch()
    (home / "studies" / "resnet" / "best.json").write_text("{}")
    (home / "studies" / "resnet" / "probes").mkdir()

    with pytest.raises(StudyNotFound, match=r"\. .*\. Did you mean studies/resnet\?"):
        disk.find(name)


@pytest.mark.parametrize("name", ["lost", "studies/lost"])
def test_a_study_without_its_record_is_told_by_its_name_too(home, name):
    _begin(home / "studies" / "lost", measured())
    codec.write(disk.make(home / "studies" / "lost" / disk.INSPECT) / RESULT, Inspection(outcome=Outcome.OK))

    with pytest.raises(StudyNotFound, match=r"studies/lost is not a study: it has 1 probe and no .* Run the command"):
        disk.find(name)


@pytest.mark.parametrize("name", ["race-train", "studies/race-train"])
def test_a_race_is_said_to_be_one_by_its_name_too(home, name):
    (disk.make(home / "studies" / "race-train") / disk.RACE).write_text("{}")

    with pytest.raises(StudyNotFound, match=r"it is a race, .*Read its result in studies/race-train/race\.json"):
        disk.find(name)


def test_where_nothing_was_searched_the_first_command_is_named(home):
    with pytest.raises(StudyNotFound, match="Run `autotune search"):
        disk.find(None)
    with pytest.raises(StudyNotFound, match=r"lstm does not exist\. It was .* no study here yet: run `autotune search"):
        disk.find("lstm")


def test_a_file_in_the_way_of_a_study_is_named(tmp_path):
    (tmp_path / "study").write_text("mine")

    for place in (tmp_path / "study", tmp_path / "study" / "inside"):
        with pytest.raises(StudyError, match=r"study.* is a file, .*\. .*\. Choose another with --study"):
            disk.make(place)
    assert (tmp_path / "study").read_text() == "mine"


def test_clearing_away_takes_nothing_that_is_not_ours(tmp_path):
    inspected = tmp_path / "project" / disk.INSPECT
    inspected.mkdir(parents=True)
    for name in ("request.json", "log.txt", "work_of_the_user.py"):
        (inspected / name).touch()

    disk.clear_away(tmp_path / "project")

    assert [path.name for path in inspected.iterdir()] == ["work_of_the_user.py"]


@pytest.mark.parametrize(("text", "stays"), [("*.pt\n", True), (disk.IGNORED, False)])
def test_clearing_away_leaves_a_folder_that_the_user_made(tmp_path, text, stays):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / ".gitignore").write_text(text)

    disk.clear_away(tmp_path / "results")

    assert (tmp_path / "results").exists() == stays


def test_clearing_away_leaves_nothing_of_ours(tmp_path):
    (tmp_path / "study" / disk.INSPECT).mkdir(parents=True)
    (tmp_path / "study" / disk.INSPECT / "log.txt").touch()
    (tmp_path / "study" / disk.LOCK).touch()

    disk.clear_away(tmp_path / "study")

    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("name", ["digits_cnn-xeon", "slow_loader-xeon"])
def test_a_study_that_was_recorded_with_fewer_knobs_reads_as_if_they_had_been_left_alone(name, tmp_path):
    younger = {"num_threads", "omp_wait_policy"}  # than some study of a user
    recorded = Path(__file__).parents[2] / "studies" / name
    for path in (path for path in recorded.rglob("*.json") if path.name != "prediction.json"):
        older = tmp_path / path.relative_to(recorded)
        older.parent.mkdir(parents=True, exist_ok=True)
        older.write_text(json.dumps(_without(younger, json.loads(path.read_text()))))

    view = load_view(tmp_path)

    every = set(defaults())
    configs = [view.request.baseline, *(trial.config for trial in view.trials)]
    configs += [one.config for one in (*view.recommendation.confirmations, *view.recommendation.runners_up)]
    assert all(set(config.values) == every for config in configs)
    assert set(view.recommendation.params) == set(view.recommendation.baseline) == set(view.request.domains) == every
    assert {config[name] for config in configs for name in younger} == {None}


def _without(names, value):
    """The same JSON with no key of these `names` anywhere."""
    if isinstance(value, dict):
        return {key: _without(names, inner) for key, inner in value.items() if key not in names}
    return [_without(names, inner) for inner in value] if isinstance(value, list) else value


def test_a_search_that_has_only_begun_is_no_failed_one(tmp_path):
    folder = tmp_path / "model"
    codec.write(disk.make(folder / disk.INSPECT) / "result.json", Inspection(outcome=Outcome.OK))

    with Lock(folder), pytest.raises(StudyNotFound, match="is being searched now, and has no probe yet"):
        disk.find(folder)
    with pytest.raises(StudyNotFound, match="its search ended before the first probe"):
        disk.find(folder)


def test_a_file_is_called_a_file(tmp_path):
    (tmp_path / "notes").write_text("")

    with pytest.raises(StudyNotFound, match="notes is a file, and a study is a folder"):
        disk.find(tmp_path / "notes")


@pytest.mark.parametrize("what", ["missing", "empty", "foreign", "file", "race"])
def test_reading_what_is_no_study_says_what_finding_it_says(tmp_path, what):
    place = tmp_path / what
    if what == "file":
        place.touch()
    elif what != "missing":
        place.mkdir()
    if what in ("foreign", "race"):
        (place / {"foreign": "notes.md", "race": disk.RACE}[what]).write_text("{}")

    with pytest.raises(StudyNotFound) as found:
        disk.find(place)
    with pytest.raises(StudyNotFound) as read:
        load_view(place)

    assert str(read.value) == str(found.value)


def test_a_study_of_which_only_the_answer_is_left_is_told_what_that_answers(tmp_path):
    (tmp_path / disk.BEST).write_text("{}")

    with pytest.raises(
        StudyNotFound, match=r"is not a whole study: .* and no study\.json, .* `autotune best .* needs no more"
    ):
        load_view(tmp_path)
