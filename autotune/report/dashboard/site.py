"""Which place shows what: pages made from studies, kept while these do not change, and the ends of logs."""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

from autotune import folder as disk
from autotune.report.compare import compare
from autotune.report.dashboard import frame
from autotune.report.dashboard.answer import HTML, Answer, Question, page_policy, plain_text
from autotune.report.dashboard.raw import RawTrials
from autotune.report.dashboard.reading import Reader, is_inside, open_regular
from autotune.report.index import render_index
from autotune.report.page import render
from autotune.report.side_by_side import render_comparison
from autotune.tuning.view import is_running

MOST_LOG_BYTES = 256 * 1024  # the end of a log holds the error; a browser should not have to swallow the rest
MOST_KEPT_PAGES = 32  # a page of 2,000 probes has some megabytes
# Making a page may take at most this share of one core while a search runs, for that core may be a probe's.
MOST_SHARE_OF_A_CORE = 0.05
LOG = re.compile(r"probes/([0-9]{4,9})/log\.txt")
STUDIES, COMPARISON, RAW = "studies/", "compare", "raw"


@dataclass(kw_only=True)
class _Page:
    stamp: str
    html: str
    made_at: float
    seconds: float  # that making it took


class Site:
    """Answers questions about the study in `path`, or about all studies in it; safe to ask from many threads."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.root = path.resolve()
        self.is_single_study = disk.is_study(self.root)
        self.raw = RawTrials()
        self._reader, self._clock = Reader(), clock
        self._pages: OrderedDict[tuple[str, ...], _Page] = OrderedDict()
        self._lock = threading.Lock()
        self._nonce = secrets.token_urlsafe(16)  # in kept pages; never sent, each answer gets one of its own

    def answer(self, question: Question) -> Answer:
        """What belongs at the place that is asked for. Raises `AutotuneError` or `OSError` for a damaged study."""
        if (raw := self.raw.answer(question, self._studies())) is not None:
            return raw
        if self.is_single_study:
            return self._study(self.root, question, question.place)
        studies = {folder.name: folder for folder in self._studies()}
        if not question.place:
            return self._index(list(studies.values()), question)
        if question.place == COMPARISON:
            return self._comparison(studies, question)
        name, slash, rest = question.place.removeprefix(STUDIES).partition("/")
        if name not in studies or not question.place.startswith(STUDIES):
            return missing()
        if not slash:
            return Answer(status=HTTPStatus.PERMANENT_REDIRECT, headers={"Location": f"/{STUDIES}{quote(name)}/"})
        return self._study(studies[name], question, rest)

    def _studies(self) -> list[Path]:
        if self.is_single_study:
            return [self.root]
        return [folder for folder in disk.studies(self.root) if not folder.is_symlink()]

    def _index(self, folders: list[Path], question: Question) -> Answer:
        def make(tag: str) -> str:
            page = render_index(folders, self._reader, nonce=self._nonce)
            return frame.served(page, nonce=self._nonce, tag=tag, raw=self.raw.link("/dashboard"))

        return self._page(("index",), folders, make, question)

    def _study(self, folder: Path, question: Question, place: str) -> Answer:
        if place == RAW and (number := self.raw.number(folder, self._studies())) is not None:
            return Answer(status=HTTPStatus.FOUND, headers={"Location": f"/dashboard/studies/{number}"})
        if place:
            return _log(folder, place)

        def make(tag: str) -> str:
            page = render(self._reader.view(folder), nonce=self._nonce)
            home = None if self.is_single_study else "/"
            return frame.served(page, nonce=self._nonce, tag=tag, home=home, raw=self.raw.link(RAW))

        return self._page(("study", folder.name), [folder], make, question)

    def _comparison(self, studies: dict[str, Path], question: Question) -> Answer:
        names = (question.query.get("a", ""), question.query.get("b", ""))
        if not all(name in studies for name in names):
            return missing()
        one, other = (studies[name] for name in names)

        def make(tag: str) -> str:
            comparison = compare(self._reader.view(one), self._reader.view(other))
            page = render_comparison(comparison, links=True, nonce=self._nonce)
            return frame.served(page, nonce=self._nonce, tag=tag, home="/")

        return self._page((COMPARISON, *names), [one, other], make, question)

    def _page(
        self, key: tuple[str, ...], folders: list[Path], make: Callable[[str], str], question: Question
    ) -> Answer:
        stamp = "-".join(self._reader.stamp(folder) for folder in folders)
        page = self._kept(key, stamp, busy=any(is_running(folder) for folder in folders))
        if page is None:
            began = self._clock()
            html = make(stamp)
            ended = self._clock()
            page = _Page(stamp=stamp, html=html, made_at=ended, seconds=ended - began)
            with self._lock:
                self._pages[key] = page
                self._pages.move_to_end(key)
                while len(self._pages) > MOST_KEPT_PAGES:
                    self._pages.popitem(last=False)
        tag = f'"{page.stamp}"'
        if question.known == tag:
            return Answer(status=HTTPStatus.NOT_MODIFIED, kind=HTML, headers={"ETag": tag})
        nonce = secrets.token_urlsafe(16)
        body = page.html.replace(self._nonce, nonce).encode("utf-8", "replace")
        return Answer(kind=HTML, body=body, policy=page_policy(nonce), headers={"ETag": tag})

    def _kept(self, key: tuple[str, ...], stamp: str, *, busy: bool) -> _Page | None:
        """The page as it was made, if it still holds; while a search runs, also if it is too soon for another."""
        with self._lock:
            page = self._pages.get(key)
        if page is None or page.stamp == stamp:
            return page
        too_soon = (self._clock() - page.made_at) * MOST_SHARE_OF_A_CORE < page.seconds
        return page if busy and too_soon else None


def missing() -> Answer:
    """There is nothing at this place."""
    return plain_text("There is no such page.\n", HTTPStatus.NOT_FOUND)


def _log(folder: Path, place: str) -> Answer:
    match = LOG.fullmatch(place)
    log = disk.log_of(folder, int(match[1])) if match else None
    if log is None or not is_inside(log, folder) or (descriptor := open_regular(log)) is None:
        return missing()
    with os.fdopen(descriptor, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - MOST_LOG_BYTES))
        end = file.read(MOST_LOG_BYTES).decode("utf-8", "replace")
    cut = size - MOST_LOG_BYTES
    return plain_text(end if cut <= 0 else f"[the first {cut} bytes are left out; the whole log is {log}]\n{end}")
