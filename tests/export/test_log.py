"""The probes of a study for other trackers, read back with the trackers' own readers."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from autotune.core.results import Outcome
from autotune.errors import UsageError
from autotune.export.rows import csv_table, rows
from autotune.export.tensorboard import losses_by_step
from autotune.knobs import KNOBS
from tests.commandline import environment, run, run_here
from tests.reporting import config, failed, ladder, measured, recommendation, trial, view, written

TRIALS = (
    *ladder()[:3],
    trial(3, config(4096, amp_dtype="bfloat16"), failed()),
    trial(4, config(32), failed(Outcome.USER_ERROR, "=cmd|' /C calc'!A1\nsecond line")),
)


def needs(library: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(library) is None, reason=f"needs {library}, an extra of this package")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    written(tmp_path / "studies" / "resnet", TRIALS, recommendation())
    return tmp_path


def test_every_probe_is_a_row_and_all_rows_have_the_same_names() -> None:
    found = rows(view(TRIALS))

    assert [row["number"] for row in found] == [0, 1, 2, 3, 4]
    assert {tuple(row) for row in found} == {tuple(found[0])}
    assert {knob.name for knob in KNOBS} <= set(found[0])


def test_a_row_tells_what_the_page_tells() -> None:
    (row,) = rows(view((trial(0, config(64), measured(152.0, wait=0.94), "baseline"),)))

    assert row["samples_per_second"] == pytest.approx(152.0)
    assert row["data_wait_share"] == pytest.approx(0.94)
    assert (row["purpose"], row["outcome"], row["feasible"], row["peak_bytes"]) == ("baseline", "ok", True, 6 * 2**30)


def test_what_was_not_measured_is_empty_and_never_zero() -> None:
    (row,) = rows(view((trial(0, config(), failed()),)))

    assert row["samples_per_second"] is None
    assert (row["feasible"], row["reason"]) == (False, "out of memory: tried to allocate 2 GiB")


def test_the_recommended_configuration_is_marked() -> None:
    best = recommendation(params=config(64).values)

    assert [
        row["recommended"]
        for row in rows(view((trial(0, config(64), measured(1)), trial(1, config(32), measured(1))), best))
    ] == [True, False]


def test_csv_can_be_read_back() -> None:
    read = list(csv.DictReader(io.StringIO(csv_table(view(TRIALS)))))

    assert len(read) == 5
    assert float(read[0]["samples_per_second"]) == pytest.approx(152.0)
    assert (read[0]["amp_dtype"], read[3]["amp_dtype"], read[3]["samples_per_second"]) == ("", "bfloat16", "")


def test_a_spreadsheet_computes_nothing_that_an_error_says() -> None:
    hostile = (trial(0, config(amp_dtype="=1+1"), failed(Outcome.CRASHED, "@SUM(1)")),)

    (read,) = csv.DictReader(io.StringIO(csv_table(view(hostile))))

    assert read["amp_dtype"] == "'=1+1"
    assert not read["reason"].startswith(("=", "+", "-", "@"))


def test_an_error_of_many_lines_stays_on_its_line() -> None:
    assert len(csv_table(view(TRIALS)).splitlines()) == 6


def test_a_study_without_probes_is_an_empty_table() -> None:
    assert csv_table(view(())) == "number\n"


def test_csv_goes_to_standard_output_or_to_a_file(home: Path) -> None:
    (home / "out").mkdir()
    printed = run_here(home, "log", "resnet", "--to", "csv")
    kept = run_here(home, "log", "resnet", "--to", "csv", "-o", "out/probes.csv")

    assert printed.stdout == (home / "out" / "probes.csv").read_text()
    assert printed.stdout.startswith("number,purpose,")
    assert kept.stderr == "wrote 5 probes to out/probes.csv\n"


@pytest.mark.parametrize("tracker", ["tensorboard", "wandb", "mlflow"])
def test_a_tracker_that_is_not_installed_names_its_extra(home: Path, tracker: str) -> None:
    if find_spec(tracker) is not None:
        pytest.skip(f"{tracker} is installed")

    told = run_here(home, "log", "resnet", "--to", tracker)

    assert told.returncode == 2
    assert f"pip install -e '.[{tracker}]'" in told.stderr


def test_an_unknown_tracker_is_told_which_there_are(home: Path) -> None:
    told = run_here(home, "log", "resnet", "--to", "neptune")

    assert told.returncode == 2
    assert "csv" in told.stderr


@needs("tensorboard")
def test_tensorboard_reads_settings_figures_losses_and_how_each_probe_ended(home: Path) -> None:
    told = run(home, "log", "resnet", "--to", "tensorboard")
    read = read_in_another_process(TENSORBOARD, home / "runs" / "resnet")

    assert told.returncode == 0, told.stderr
    assert set(read) == {"0000-baseline", "0001-search", "0002-search", "0003-search", "0004-search"}
    assert read["0000-baseline"]["samples_per_second"] == [pytest.approx(152.0, rel=1e-6)]
    assert read["0000-baseline"]["loss"] == 8 * [pytest.approx(2.3, rel=1e-6)]
    assert read["0000-baseline"]["settings"]["batch_size"] == 64
    assert (read["0000-baseline"]["status"], read["0003-search"]["status"]) == (1, 2)
    assert "samples_per_second" not in read["0003-search"]


@pytest.mark.parametrize(("workers", "accumulation", "settled"), [(0, 1, 1), (4, 1, 4), (4, 3, 2), (1, 2, 1)])
def test_a_loss_of_a_block_stands_at_its_last_optimizer_step(workers: int, accumulation: int, settled: int) -> None:
    single = 3 + settled  # the warm-up of `measured`, and what drained what workers had ready
    result = measured(152.0, steps_per_block=100)
    given = (*range(single), 50.0, None, 70.0)  # the last was issued, and the window ended before
    result = replace(result, measurement=replace(result.measurement, losses=given))
    settings = config(num_workers=workers, gradient_accumulation_steps=accumulation)

    found = losses_by_step(trial(0, settings, result))

    assert found[:single] == [(step, step) for step in range(single)]
    assert [step - single for step, _ in found[single:]] == [99, 199, 299]
    assert [str(loss) for _, loss in found[single:]] == ["50.0", "nan", "70.0"]


def test_a_loss_of_every_step_stands_at_it_and_a_probe_that_failed_has_none() -> None:
    assert [step for step, _ in losses_by_step(trial(0, config(), measured(152.0)))] == list(range(8))
    assert losses_by_step(trial(0, config(), failed())) == []


@needs("tensorboard")
def test_two_exports_are_not_mixed_in_one_folder(home: Path) -> None:
    from autotune.export.tensorboard import send

    (home / "runs").mkdir()
    (home / "runs" / "something").touch()

    with pytest.raises(UsageError, match="is not an empty folder"):
        send(view(TRIALS), str(home / "runs"))


@needs("wandb")
def test_weights_and_biases_keeps_the_table_the_answer_and_the_charts_offline(home: Path) -> None:
    told = run(home, "log", "resnet", "--to", "wandb", "-o", "here", WANDB_MODE="offline", HOME=str(home))

    assert told.returncode == 0, told.stderr
    assert "wandb sync" in told.stderr
    read = read_in_another_process(WANDB, next((home / "here").rglob("run-*.wandb")))
    assert read["config"]["batch_size"] == "1024"
    assert float(read["summary"]["speedup"]) == pytest.approx(15.33)
    (kept,) = (home / "here").rglob("probes*.table.json")
    content = json.loads(kept.read_text())
    assert len(content["data"]) == 5
    assert content["data"][0][content["columns"].index("samples_per_second")] == pytest.approx(152.0)


@needs("mlflow")
def test_mlflow_reads_the_answer_and_a_nested_run_for_every_probe(home: Path) -> None:
    store = f"sqlite:///{home / 'mlflow.db'}"

    told = run(home, "log", "resnet", "--to", "mlflow", "-o", store)
    read = read_in_another_process(MLFLOW, store, home=home)

    assert told.returncode == 0, told.stderr
    parent = read.pop("resnet")
    assert parent["params"]["batch_size"] == "1024"
    assert parent["metrics"]["speedup"] == pytest.approx(15.33)
    assert parent["artifacts"] == ["best.json"]
    assert {run["parent"] for run in read.values()} == {parent["id"]}
    assert len(read) == 5
    assert (read["probe 0"]["status"], read["probe 3"]["status"]) == ("FINISHED", "FAILED")
    assert read["probe 0"]["metrics"]["samples_per_second"] == pytest.approx(152.0)
    assert read["probe 3"]["tags"]["autotune.outcome"] == "oom-device"


def read_in_another_process(program: str, *words: object, home: Path | None = None) -> Any:
    """What `program` prints as JSON: trackers leave threads, warnings and settings behind."""
    command = [sys.executable, "-W", "ignore", "-c", program, *map(str, words)]
    run = subprocess.run(
        command, capture_output=True, text=True, cwd=home, env=environment(home or Path()), check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


TENSORBOARD = """
import json, os, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata
found = {}
for name in os.listdir(sys.argv[1]):
    if not os.path.isdir(os.path.join(sys.argv[1], name)): continue
    events = EventAccumulator(os.path.join(sys.argv[1], name))
    events.Reload()
    run = {tag: [event.value for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    plugin = events.PluginTagToContent("hparams")
    start = metadata.parse_session_start_info_plugin_data(plugin[metadata.SESSION_START_INFO_TAG])
    end = metadata.parse_session_end_info_plugin_data(plugin[metadata.SESSION_END_INFO_TAG])
    run["settings"] = {key: value.number_value for key, value in start.hparams.items()}
    run["status"] = end.status
    found[name] = run
print(json.dumps(found))
"""

# Its file is a log as LevelDB writes it: after 7 bytes of header, blocks of 32 KiB hold pieces of records, each with a
# checksum (4 bytes), a length (2) and a kind (1: whole, 2: first, 3: middle, 4: last).
WANDB = """
import json, struct, sys
from wandb.proto import wandb_internal_pb2
content = open(sys.argv[1], "rb").read()
found, place, whole = {"config": {}, "summary": {}}, 7, b""
while place + 7 <= len(content):
    left = 32768 - place % 32768
    if left < 7:
        place += left
        continue
    _, length, kind = struct.unpack("<IHB", content[place:place + 7])
    whole = (b"" if kind in (1, 2) else whole) + content[place + 7:place + 7 + length]
    place += 7 + length
    if kind in (1, 4) and whole:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(whole)
        for item in [*record.run.config.update, *record.config.update]:
            found["config"][item.key or item.nested_key[0]] = item.value_json
        for item in record.summary.update:
            found["summary"][item.key or item.nested_key[0]] = item.value_json
print(json.dumps(found))
"""

MLFLOW = """
import json, sys
import mlflow
client = mlflow.MlflowClient(tracking_uri=sys.argv[1])
experiment = client.get_experiment_by_name("autotune")
found = {}
for run in client.search_runs([experiment.experiment_id]):
    found[run.info.run_name] = {
        "id": run.info.run_id, "status": run.info.status, "params": run.data.params, "metrics": run.data.metrics,
        "tags": run.data.tags, "parent": run.data.tags.get("mlflow.parentRunId"),
        "artifacts": [one.path for one in client.list_artifacts(run.info.run_id)],
    }
print(json.dumps(found))
"""
