"""A worker's folder is its own while it lives, and nobody's afterwards."""

import tempfile

from autotune.fleet.scratch import scratch_folder, sweep


def test_what_a_killed_worker_left_is_swept_away_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, linked, other = tmp_path / "autotune-worker-left", tmp_path / "autotune-worker-link", tmp_path / "mine"
    for one in (left, other):
        one.mkdir()
        (one / "log.txt").write_text("x")
    linked.symlink_to(other)

    with scratch_folder() as own:
        sweep(least_age_seconds=-1.0)
        kept = sorted(path.name for path in tmp_path.iterdir())

    assert kept == sorted([own.name, linked.name, "mine"])
    assert (other / "log.txt").exists() and not own.exists()


def test_a_folder_that_may_just_have_been_made_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "autotune-worker-new").mkdir()

    sweep()

    assert (tmp_path / "autotune-worker-new").exists()
