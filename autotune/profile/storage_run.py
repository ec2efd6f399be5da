"""The reading of a dataset's storage for a profile, in a process that has not read the dataset before."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from autotune.core.results import Outcome
from autotune.launch.base import Launcher
from autotune.profile.records import ProfileRequest, ProfileResult


def with_storage(result: ProfileResult, asked: ProfileRequest, launcher: Launcher, place: Path) -> ProfileResult:
    """Return the result with the readings of storage, or why they are unknown; unchanged if samples open no file."""
    caches = place / "caches"
    folder = place / "storage"
    caches.mkdir()
    folder.mkdir()
    found = launcher.run(replace(asked, extent="storage", output=str(caches)), folder)
    if found.outcome is not Outcome.OK:
        return replace(result, left_out=(*result.left_out, f"How fast storage is was not measured: {found.why}."))
    return replace(result, storage=found.storage)
