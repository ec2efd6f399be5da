"""What the user may name as a contestant."""

import pytest

from autotune.errors import TargetError, UsageError
from autotune.knobs import OURS
from autotune.knobs.parsing import full_name
from autotune.preparation.named_training import named_training
from autotune.races.race import named_contestants
from tests.reporting import recommendation, whole, written


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("def model(): ...\ndef dataset(): ...\n")
    (tmp_path / "train.py").write_text("import argparse\nargparse.ArgumentParser().add_argument('--bs')\n")


def test_a_file_a_command_and_words_are_targets(tmp_path):
    assert named_training("model.py").target == "model.py"
    assert named_training(tmp_path / "model.py").target == str(tmp_path / "model.py")
    assert named_training("python train.py --bs 64").target == "-- python train.py --bs {batch_size=64}"
    assert named_training(["python", "train.py", "--bs", "64"]) == named_training("python train.py --bs 64")


def test_a_command_may_be_longer_than_a_name():
    words = " ".join(f"--option{number} 1" for number in range(30))

    found = named_training(f"python train.py --bs 64 {words}")

    assert found.target == f"-- python train.py --bs {{batch_size=64}} {words}"


def test_a_study_runs_its_target_with_the_recommended_settings(tmp_path):
    written(tmp_path / "studies" / "resnet", whole(), recommendation(target="model.py"))

    for name in ("resnet", "studies/resnet"):
        found = named_training(name)

        assert (found.label, found.target) == (name, "model.py")
        assert found.values["batch_size"] == 1024


def test_a_study_without_an_answer_is_no_verdict(tmp_path):
    written(tmp_path / "studies" / "resnet", whole())

    with pytest.raises(UsageError, match="no recommendation yet"):
        named_training("resnet")


def test_a_missing_file_is_told_before_anything_runs():
    with pytest.raises(TargetError, match=r"Did you mean model\.py"):
        named_training("modle.py")


@pytest.mark.parametrize("name", ["studies/resnett", "resnett"])
def test_a_study_that_is_not_there_is_told_with_those_that_are(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "studies" / "resnet", whole(14), recommendation())

    with pytest.raises(TargetError) as told:
        named_training(name)

    assert name in str(told.value)
    assert "study" in str(told.value)
    assert "The studies in studies are resnet." in str(told.value)


def test_the_first_named_is_the_baseline_and_settings_and_revisions_are_of_the_first():
    found = named_contestants(["model.py", "train.py"], [{"batch_size": 64}], "main")

    assert [one.label for one in found] == ["model.py at main", "model.py", "train.py", "model.py with batch=64"]
    assert [one.revision for one in found] == ["main", "", "", ""]


@pytest.mark.parametrize(("names", "said"), [([], "two contestants"), (["model.py"], "two contestants")])
def test_who_cannot_race_is_told(names, said):
    with pytest.raises(UsageError, match=said):
        named_contestants(names, [], None)


def test_a_code_races_against_itself():
    found = named_contestants(["model.py", "model.py"], [{"batch_size": 8}, {"batch_size": 8}], None)

    assert [one.label for one in found] == [
        "model.py", "model.py (2)", "model.py with batch=8", "model.py with batch=8 (2)"
    ]  # fmt: skip


def test_settings_without_any_are_no_contestant():
    with pytest.raises(UsageError, match=r"--config names no setting.*\. .*\. Write"):
        named_contestants(["model.py"], [{}], None)


@pytest.mark.parametrize("knob", OURS, ids=lambda knob: knob.name)
def test_settings_are_shown_as_they_are_typed(knob):
    for value in [*knob.formats.get("", ()), knob.default]:
        found = named_training("model.py").with_changed_values({knob.name: value})

        name, _, typed = found.label.removeprefix("model.py with ").partition("=")
        assert (full_name(name), knob.parse(typed)) == (knob.name, value)


@pytest.mark.parametrize("is_text", [True, False])
def test_a_command_with_placeholders_is_named_by_what_it_runs(is_text):
    words = ["python", "train.py", "--bs", "64", "--act", "{act:relu/tanh}", "--name", "{epoch}"]

    found = named_training(" ".join(words) if is_text else words)
    other = found.with_changed_values({"act": "tanh"})

    assert found.label == "python train.py --bs 64 --act relu --name {epoch}"
    assert other.label == f"{found.label} with act=tanh"
    assert named_training("python train.py --bs {batch_size=8}").label == "python train.py --bs 8"
