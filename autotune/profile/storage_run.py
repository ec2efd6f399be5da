"""The reading of a dataset's storage beside a profile: in a process that has not read any of it."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from autotune.core.results import Outcome
from autotune.launch.base import Launcher
from autotune.profile.records import ProfileRequest, ProfileResult


def with_storage(result: ProfileResult, asked: ProfileRequest, launcher: Launcher, place: Path) -> ProfileResult:
    """Return the result with the rates of storage, or why they are not known; unchanged where samples open no file."""
    caches = place / "caches"
    folder = place / "storage"
    caches.mkdir()
    folder.mkdir()
    found = launcher.run(replace(asked, extent="storage", output=str(caches)), folder)
    if found.outcome is not Outcome.OK:
        return replace(result, left_out=(*result.left_out, f"How fast storage is was not measured: {found.why}."))
    return replace(result, storage=found.storage)
