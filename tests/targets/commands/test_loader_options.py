"""Options of the loader in commands: recognised as arguments, set from outside where the script leaves them out."""

from __future__ import annotations

import pytest

from autotune.core.records import Value
from autotune.errors import TargetError
from autotune.targets.commands.recognition.recognise import recognise
from tests.targets.commands.test_watched_commands import TRAIN, inspect, steps

OPTIONS = {"num_workers", "prefetch_factor", "persistent_workers"}
GIVEN = "for x, y in batches(num_workers=1): step(x, y)\n"


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("", OPTIONS),
        ("num_workers=1", {"prefetch_factor", "persistent_workers"}),
        ("num_workers=1, prefetch_factor=3", {"persistent_workers"}),
        ("num_workers=1, prefetch_factor=3, persistent_workers=False", set()),
    ],
)
def test_each_is_settable_where_the_script_leaves_it_out(tmp_path, given: str, left: set[str]) -> None:
    facts = inspect(tmp_path, f"for x, y in batches({given}): step(x, y)\n")

    assert OPTIONS & {*(facts.settable or ())} == left
    assert facts.baseline is not None
    assert (facts.baseline["prefetch_factor"], facts.baseline["persistent_workers"]) == (None, None)  # left alone
    assert facts.is_program


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (TRAIN, {"num_workers": 1, "prefetch_factor": 4, "persistent_workers": False}),
        (GIVEN, {"num_workers": 1, "prefetch_factor": 4}),
        (GIVEN, {"num_workers": 1, "persistent_workers": True}),
        ("for x, y in batches(num_workers=1, prefetch_factor=3): step(x, y)\n", {"num_workers": 1}),
    ],
)
def test_they_take_effect_from_outside(tmp_path, text: str, values: dict[str, Value]) -> None:
    taken = steps(tmp_path, text, **values)  # which looks at what the loader had

    assert [step.samples for step in taken] == [8, 8, 8]


@pytest.mark.parametrize(
    ("given", "values", "words"),
    [
        ("prefetch_factor=3", {"prefetch_factor": 4}, "given 4 batches ahead for each worker and trained with 3"),
        ("persistent_workers=False", {"persistent_workers": True}, "trained with workers started for each epoch"),
    ],
)
def test_one_that_the_script_sets_itself_voids_the_probe(
    tmp_path, given: str, values: dict[str, Value], words: str
) -> None:
    with pytest.raises(TargetError, match=words):
        steps(tmp_path, f"for x, y in batches(num_workers=1, {given}): step(x, y)\n", num_workers=1, **values)


PARSED = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=1)
parser.add_argument("--prefetch-factor", type=int, default=2)
parser.add_argument("--pin-mem", action="store_true")
parser.add_argument("--persistent-workers", action="store_true")
"""


@pytest.mark.parametrize(
    ("line", "today"),
    [
        ("", {"num_workers": 1, "prefetch_factor": 2, "pin_memory": False, "persistent_workers": False}),
        ("--prefetch-factor 4 --pin-mem", {"prefetch_factor": 4, "pin_memory": True, "persistent_workers": False}),
        ("--persistent-workers", {"persistent_workers": True}),
    ],
)
def test_they_are_recognised_as_arguments(tmp_path, line: str, today: dict[str, Value]) -> None:
    script = tmp_path / "train.py"
    script.write_text(PARSED)

    found = recognise(["python", str(script), *line.split()]).command

    assert today.items() <= found.baseline.items()


def test_what_is_recommended_is_written_into_the_command(tmp_path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PARSED)
    found = recognise(["python", str(script)]).command

    values = {"num_workers": 2, "prefetch_factor": 4, "pin_memory": False, "persistent_workers": True}

    assert found.recommended(values)[2:] == ["--workers", "2", "--prefetch-factor", "4", "--persistent-workers"]
