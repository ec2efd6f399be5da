"""The pages of studies and the ends of logs; each page is kept until its study changes."""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autotune.dashboard.index import render_index
from autotune.dashboard.reading import is_inside, open_regular, read_view, stamp
from autotune.errors import StudyNotFound
from autotune.report.compare import compare
from autotune.report.compare_text import render_comparison
from autotune.report.page import render
from autotune.report.templates import Served
from autotune.study import disk
from autotune.study.running import is_running

MOST_LOG_BYTES = 256 * 1024  # the end of a log holds the error; a browser should not have to load the rest
MOST_KEPT_PAGES = 32  # a page of 2,000 probes has a few megabytes
# While a search runs, making a page may take at most this share of one core, because a probe may need that core.
MOST_SHARE_OF_A_CORE = 0.05
NUMBER = re.compile("[0-9]{4,9}")


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page as it was made; `stamp` changes when anything changes that it shows."""

    stamp: str
    html: str
    made_at: float
    seconds: float  # that it took to make it


class Site:
    """The study in `path`, or all studies in it; it may be asked from many threads.

    Raises `StudyNotFound` for what is not there, another `AutotuneError` or `OSError` for a damaged study.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.root = path.resolve()
        self.is_single_study = disk.is_study(self.root)
        self.nonce = secrets.token_urlsafe(16)  # in all stored pages, never sent: each answer gets a new one
        self._clock = clock
        self._pages: dict[tuple[str, ...], Page] = {}
        self._lock = threading.Lock()

    def index(self) -> Page:
        """Return the page with the list of studies."""
        folders = list(self._studies().values())
        return self._page(("index",), folders, lambda served: render_index(folders, served))

    def study(self, name: str | None = None) -> Page:
        """Return the page of a study; without a name that of the only one."""
        folder, home = self.folder(name), "" if name is None else "/"
        return self._page(("study", folder.name), [folder], lambda s: render(read_view(folder), served=s), home)

    def comparison(self, a: str, b: str) -> Page:
        """Return the page that compares the studies `a` and `b`."""
        both = [self.folder(a), self.folder(b)]
        return self._page(
            ("compare", a, b), both, lambda s: render_comparison(compare(*map(read_view, both)), served=s), "/"
        )

    def log(self, name: str | None, number: str) -> str:
        """Return the end of a probe's log, as text."""
        folder = self.folder(name)
        log = disk.log_of(folder, int(number)) if NUMBER.fullmatch(number) else folder
        if not is_inside(log, folder) or (descriptor := open_regular(log)) is None:
            raise StudyNotFound("There is no such page.")
        with os.fdopen(descriptor, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MOST_LOG_BYTES))
            end = file.read(MOST_LOG_BYTES).decode("utf-8", "replace")
        cut = size - MOST_LOG_BYTES
        return end if cut <= 0 else f"[the first {cut} bytes are left out; the whole log is {log}]\n{end}"

    def folder(self, name: str | None) -> Path:
        """Return the folder of the study of this name."""
        if name is None:
            return self.root
        try:
            return self._studies()[name]  # only by the name of a study that exists: no path leads elsewhere
        except KeyError:
            raise StudyNotFound("There is no such page.") from None

    def _studies(self) -> dict[str, Path]:
        return {folder.name: folder for folder in disk.studies(self.root) if not folder.is_symlink()}

    def _page(self, key: tuple[str, ...], folders: list[Path], make: Callable[[Served], str], home: str = "") -> Page:
        now = "-".join(stamp(folder) for folder in folders)
        page = self._kept(key, now, busy=any(is_running(folder) for folder in folders))
        if page is None:
            began = self._clock()
            html = make(Served(nonce=self.nonce, tag=now, home=home))
            ended = self._clock()
            page = Page(stamp=now, html=html, made_at=ended, seconds=ended - began)
            with self._lock:
                self._pages.pop(key, None)  # the newest is last
                self._pages[key] = page
                if len(self._pages) > MOST_KEPT_PAGES:
                    del self._pages[next(iter(self._pages))]
        return page

    def _kept(self, key: tuple[str, ...], now: str, *, busy: bool) -> Page | None:
        """Return the stored page if it is valid, or if a search runs and it is too soon for a new one; else None."""
        with self._lock:
            page = self._pages.get(key)
        if page is None or page.stamp == now:
            return page
        too_soon = (self._clock() - page.made_at) * MOST_SHARE_OF_A_CORE < page.seconds
        return page if busy and too_soon else None
