"""A real headless Chromium, once for all tests here; without one they are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(
    scope="module"
)  # its driver ends before a later test forks: a child would hold its pipe, and it would never end
def browser() -> Iterator[Browser]:
    """Chromium, ready for pages."""
    client = pytest.importorskip("playwright.sync_api", reason="playwright's client is not installed")
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser here: none of {', '.join(NAMES)}")
    with client.sync_playwright() as driver:
        # Without a sandbox, for containers run as root; the pages are ours.
        started = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()
