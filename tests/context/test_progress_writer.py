"""What a search says and does is in its study, for whoever follows it by the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.context.progress_writer import MOST_SAID, ProgressWriter
from autotune.core.records import Config
from autotune.study.progress import PROGRESS, read_progress
from autotune.testing.launcher import FakeLauncher
from tests.worlds import Listener, config, good, measured, searched, trial

BATCH = Config(values=config(batch_size=128).values)


def test_a_search_keeps_every_sentence_that_its_reporter_hears(tmp_path: Path) -> None:
    listener = Listener()

    searched(tmp_path / "study", FakeLauncher(), listener, probes=6)

    progress = read_progress(tmp_path / "study")
    assert progress is not None
    assert [one.text for one in progress.said] == listener.notes
    assert progress.running is None


def test_the_probe_that_runs_is_known_until_it_has_ended(tmp_path: Path) -> None:
    writer = ProgressWriter(Listener(), tmp_path, 60.0, lambda: 0.0)

    writer.probing(3, BATCH, "search")
    begun = read_progress(tmp_path)
    writer.probed(trial(measured(100.0)), good(100.0), True)
    ended = read_progress(tmp_path)

    assert begun is not None and begun.running is not None and ended is not None
    assert (begun.running.number, begun.running.config, begun.running.purpose) == (3, BATCH, "search")
    assert begun.budget_seconds == 60.0
    assert ended.running is None


def test_the_phase_stays_while_the_baseline_is_measured_once_more(tmp_path: Path) -> None:
    writer = ProgressWriter(Listener(), tmp_path, 60.0, lambda: 0.0)

    writer.phase("search")
    writer.probing(3, BATCH, "reference")

    progress = read_progress(tmp_path)
    assert progress is not None and progress.purpose == "search"


def test_what_is_done_between_probes_is_known_until_the_next_begins(tmp_path: Path) -> None:
    writer = ProgressWriter(Listener(), tmp_path, 60.0, lambda: 0.0)

    writer.detail("Comparing the losses.")
    between = read_progress(tmp_path)
    writer.probing(3, BATCH, "confirm")
    probing = read_progress(tmp_path)

    assert between is not None and between.doing == "Comparing the losses."
    assert probing is not None and probing.doing == ""


def test_a_search_tells_its_stages_in_their_order(tmp_path: Path) -> None:
    listener = Listener()

    searched(tmp_path / "study", FakeLauncher(), listener, probes=6)

    assert listener.stages == ["search", "confirm", "ablation"]


def test_a_long_search_keeps_its_latest_sentences(tmp_path: Path) -> None:
    writer = ProgressWriter(Listener(), tmp_path, None, lambda: 0.0)

    for number in range(MOST_SAID + 5):
        writer.note(str(number))

    progress = read_progress(tmp_path)
    assert progress is not None
    assert [one.text for one in progress.said] == [str(number) for number in range(5, MOST_SAID + 5)]


def test_a_state_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    listener = Listener()

    ProgressWriter(listener, tmp_path / "gone", None).note("go on")

    assert listener.notes == ["go on"]


@pytest.mark.parametrize("kind", ["link", "damaged", "absent", "folder"])
def test_what_is_no_state_is_none(tmp_path: Path, kind: str) -> None:
    if kind == "link":
        (tmp_path / "elsewhere.json").write_text('{"began_at": ""}')
        (tmp_path / PROGRESS).symlink_to(tmp_path / "elsewhere.json")
    elif kind == "damaged":
        (tmp_path / PROGRESS).write_text("{")
    elif kind == "folder":
        (tmp_path / PROGRESS).mkdir()

    assert read_progress(tmp_path) is None
