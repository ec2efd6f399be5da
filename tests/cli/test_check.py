"""`autotune check --memory`: what every batch size would need, by a real shape run in a process of its own."""

import json
import re

import pytest
from rich.console import Console

from autotune.cli.check import predict_memory
from autotune.core import codec
from autotune.core.records import Goal, StudyRequest
from autotune.core.results import Outcome
from autotune.memory.records import ShapeRun
from autotune.preparation.prepare import memory_bounds
from autotune.preparation.settings import Settings
from autotune.testing import FakeLauncher
from tests.commandline import TARGET, assert_one_clear_error
from tests.commandline import run_here as run
from tests.worlds import config, space, study_request

SHORT = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    model(torch.ones(8, 4)).sum().backward()
    optimizer.step()
"""
OWN_LOADER = (
    TARGET.replace("def dataset(): return", "DATA =")
    + "def dataloader(batch_size): return torch.utils.data.DataLoader(DATA, batch_size)\n"
)
NUMBERS = r"trained for [\d.]+ m?s|train for [\d,]+ steps"

pytestmark = pytest.mark.slow  # real shape runs


def test_what_each_batch_needs_is_predicted_in_a_table(tmp_path):
    (tmp_path / "model.py").write_text(TARGET.replace("64]", "64, 512]"))

    checked = run(tmp_path, "check", "model.py", "--memory-limit", "4GiB")

    assert checked.returncode == 0, checked.stderr
    assert "\n  hold global batch 64\n  baseline 64×1\n" in checked.stdout
    lines = [line.split() for line in checked.stdout.splitlines()]
    table = checked.stdout.splitlines()[lines.index(["batch", "peak"]) + 1 :]
    assert [line.split()[0] for line in table[:8]] == ["1", "2", "4", "8", "16", "32", "64", "512"]
    assert all(line.endswith("✓") for line in table[:7])
    assert "✓" not in table[7] and table[7].endswith("not searched: it does not divide the held global batch")
    assert "3.8 GiB may be used" in checked.stdout  # a search keeps 5 % of a limit free
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["model.py"]


def test_a_command_that_trains_too_short_for_a_search_is_refused_in_the_words_of_the_search(tmp_path):
    (tmp_path / "train.py").write_text(SHORT)

    calls = (("check",), ("search",), ("search", "--dry-run"))
    ended = [run(tmp_path, *words, "--", "python", "train.py") for words in calls]

    said = [assert_one_clear_error(one) for one in ended]
    assert all(
        "after 30 optimizer steps, before it was measured. It has probably too little to do" in one for one in said
    )
    check, search, preview = (re.sub(NUMBERS, "", one.partition("\nA search of the changed")[0]) for one in said)
    assert check == search == preview


def test_what_is_not_tuned_for_want_of_divisors_is_said(tmp_path):
    (tmp_path / "model.py").write_text(TARGET.partition("baseline")[0] + 'baseline = {"batch_size": 12}\n')

    checked = run(tmp_path, "check", "model.py")

    assert checked.returncode == 0, checked.stderr
    assert "batch_size" not in checked.stdout.partition("will tune: ")[2].splitlines()[0]
    assert "batch not searched: 12 samples are held per optimizer step" in checked.stdout


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (("check", "model.py"), set(StudyRequest.__struct_fields__)),
        (("search", "model.py", "--dry-run"), {"request", "configuration_count", "configurations"}),
    ],
    ids=["check", "dry-run"],
)
def test_json_has_what_is_not_searched_with_code_and_numbers(words, kept, tmp_path):
    (tmp_path / "model.py").write_text(OWN_LOADER)

    told, shown = run(tmp_path, *words, "--json"), run(tmp_path, *words)

    found = json.loads(told.stdout)
    left_out = found.pop("not_searched")
    assert found.keys() == kept
    assert {
        "code": "workers-not-taken",
        "numbers": {"knob": "num_workers", "label": "workers"},
        "text": "workers not tuned: dataloader() takes no num_workers",
    } in left_out
    assert [one["text"] for one in left_out if one["text"] not in shown.stdout] == []


def test_a_baseline_that_breaks_what_is_held_is_said_to_be_for_comparison_only(tmp_path):
    (tmp_path / "model.py").write_text(
        TARGET.replace('"batch_size": 64}', '"batch_size": 48}') + "global_batch_size = 64\n"
    )

    checked = run(tmp_path, "check", "model.py")

    assert "\n  hold global batch 64\n" in checked.stdout
    assert "(for comparison only: its global batch is 48, and 64 is held)\n" in checked.stdout


def test_as_json_it_is_the_shape_run_itself(capsys):
    wide = space(goal=Goal(), baseline=config(batch_size=64))

    predict_memory(FakeLauncher(), study_request(), wide, "90%", (64,), json_output=True, console=Console())

    found = codec.decode(capsys.readouterr().out.encode(), ShapeRun)
    assert found.outcome is Outcome.OK
    assert len(found.arms) == 6


def test_the_table_and_a_search_hold_peaks_against_the_same_bytes(capsys):
    wide, request = space(goal=Goal(), baseline=config(batch_size=64)), study_request()
    limit, _, headroom = memory_bounds(Settings(target="model.py", memory_limit="50%"), request.environment)
    asked = []

    class Watched(FakeLauncher):
        def run(self, request, folder):
            asked.append(request.limit_bytes)
            return super().run(request, folder)

    predict_memory(Watched(), request, wide, "50%", (64,), json_output=True, console=Console())

    assert asked == [limit - headroom]


def test_a_limit_that_is_none_is_told_before_anything_is_run(tmp_path):
    checked = run(tmp_path, "check", "missing.py", "--memory-limit", "much")

    assert checked.returncode == 2
    assert "--memory-limit: 'much' is not an amount of memory: write 8GiB, 8000MB or 90%." in checked.stderr
