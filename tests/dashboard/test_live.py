"""The dashboard follows a search: what changed is sent, what did not costs nothing, and the study never notices."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.core import codec
from autotune.core.requests import ProbeRequest
from autotune.dashboard.reading import read_view
from autotune.dashboard.site import MOST_KEPT_PAGES, Site
from autotune.study import disk
from autotune.study.lock import Lock
from tests.reporting import ladder, measured, recommendation, trial, written
from tests.serving import ask, serving

TRIALS = ladder()


@pytest.fixture
def study(tmp_path: Path) -> Path:
    written(tmp_path / "studies" / "resnet", TRIALS[:3])
    return tmp_path / "studies" / "resnet"


def add_probe(folder: Path, number: int, rate: float = 1000) -> None:
    one = trial(number, TRIALS[1].config, measured(rate))
    place = disk.make(disk.log_of(folder, number).parent)
    asked = ProbeRequest(target="model.py", config=one.config, device="cuda:0", number=number)
    codec.write(place / "request.json", asked)
    codec.write(place / "result.json", one.result)


def everything(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))}


def part(page: str, name: str) -> str:
    (found,) = re.findall(rf'<section id="{name}">.*?</section>', page, re.S)
    return found


@pytest.mark.parametrize("place", ["/", "/studies/resnet/", "/compare?a=resnet&b=resnet"])
def test_a_page_that_did_not_change_is_not_sent_again(study: Path, place: str) -> None:
    with serving(study.parent) as server:
        first = ask(server, place)
        again = ask(server, place, If_None_Match=first[1]["ETag"])
        add_probe(study, 3)
        after = ask(server, place, If_None_Match=first[1]["ETag"])

    assert (again[0], again[2]) == (304, "")
    assert after[0] == 200
    assert after[1]["ETag"] != first[1]["ETag"]


def test_of_a_grown_study_the_parts_that_did_not_change_are_the_same_to_the_letter(study: Path) -> None:
    with serving(study) as server:
        before = ask(server, "/")[2]
        add_probe(study, 3)
        after = ask(server, "/")[2]

    assert part(before, "answer") == part(after, "answer")
    assert part(before, "probes") != part(after, "probes")


@pytest.mark.parametrize("place", ["/", "/studies/resnet/", "/compare?a=resnet&b=resnet"])
def test_every_part_of_a_page_can_be_exchanged_by_its_id(study: Path, place: str) -> None:
    with serving(study.parent) as server:
        page = ask(server, place)[2]

    body = page.partition("<main>")[2].partition("</main>")[0]
    assert re.findall(r"<section(?! id=)", body) == []
    assert len(set(re.findall(r'<section id="([^"]+)"', body))) == len(re.findall(r"<section", body)) > 0


def test_the_page_brings_the_version_that_its_script_starts_from(study: Path) -> None:
    with serving(study) as server:
        _, headers, page = ask(server, "/")

    (tag,) = re.findall(r'data-tag="([^"]+)"', page)
    assert headers["ETag"] == f'"{tag}"'


def test_the_beginning_and_the_end_of_a_search_are_seen(study: Path) -> None:
    clock = Clock()
    site = Site(study, clock)

    idle = site.study()
    lock = Lock(study)
    clock.now += 100
    running = site.study()
    lock.release()
    ended = site.study()

    assert ["running now" in page.html for page in (idle, running, ended)] == [False, True, False]
    assert len({page.stamp for page in (idle, running)}) == 2


def test_reading_leaves_no_trace_in_the_study_and_holds_no_lock(study: Path) -> None:
    Lock(study).release()
    before = everything(study)

    with serving(study.parent) as server:
        for place in (
            "/",
            "/studies/resnet/",
            "/studies/resnet/probes/0001/log.txt",
        ):
            ask(server, place)
        Lock(study).release()  # raises if anybody holds it

    assert everything(study) == before | {str(study / disk.LOCK): (study / disk.LOCK).stat().st_mtime_ns}


def test_a_search_can_take_its_lock_while_many_are_looking(study: Path) -> None:
    with serving(study) as server:
        lookers = [threading.Thread(target=lambda: [ask(server, "/") for _ in range(5)]) for _ in range(4)]
        for looker in lookers:
            looker.start()
        for _ in range(20):
            Lock(study).release()
        for looker in lookers:
            looker.join()


def test_a_finished_probe_is_decoded_once(study: Path) -> None:
    result = study / "probes" / "0001" / "result.json"
    read_view(study)
    found = result.stat()
    with result.open("r+b") as file:
        file.write(b"?")  # not JSON any more, in the same file of the same size
    os.utime(result, ns=(found.st_atime_ns, found.st_mtime_ns))

    assert len(read_view(study).trials) == 3


def test_a_probe_that_was_run_again_is_read_again(study: Path) -> None:
    read_view(study)

    codec.write(study / "probes" / "0001" / "result.json", measured(1234))

    result = read_view(study).trials[1].result
    assert result.measurement is not None
    assert round(result.measurement.samples_per_second) == 1234


def test_a_probe_that_is_being_measured_is_not_shown_yet(study: Path) -> None:
    place = disk.make(study / "probes" / "0003")
    asked = ProbeRequest(target="model.py", config=TRIALS[1].config, device="cuda:0", number=3)
    codec.write(place / "request.json", asked)
    (place / "result.json.partial").write_text('{"outcome"')

    assert [one.number for one in read_view(study).trials] == [0, 1, 2]


class Clock:
    """Every look at it costs a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_while_a_search_runs_making_pages_takes_a_twentieth_of_a_core_at_most(study: Path) -> None:
    clock = Clock()
    site = Site(study, clock)
    lock = Lock(study)
    first = site.study()
    add_probe(study, 3)

    soon = site.study()
    clock.now += 20
    later = site.study()
    lock.release()

    assert soon.stamp == first.stamp
    assert later.stamp != first.stamp


def test_the_last_state_is_shown_at_once_when_the_search_has_ended(study: Path) -> None:
    site = Site(study, Clock())
    lock = Lock(study)
    site.study()
    codec.write(study / disk.BEST, recommendation())
    lock.release()

    assert "15.3×" in site.study().html


def test_pages_that_nobody_asks_for_again_are_not_kept_for_ever(tmp_path: Path) -> None:
    for number in range(MOST_KEPT_PAGES + 2):
        written(tmp_path / f"study{number}", ())
    site = Site(tmp_path)

    for number in range(MOST_KEPT_PAGES + 2):
        site.study(f"study{number}")

    assert len(site._pages) == MOST_KEPT_PAGES


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    written(tmp_path / "done", TRIALS[:3], recommendation())
    written(tmp_path / "busy", TRIALS[:2])
    written(tmp_path / "kept", (), recommendation())
    (tmp_path / "kept" / "study.json").unlink()
    written(tmp_path / "damaged", ())
    (tmp_path / "damaged" / "study.json").write_text("{")
    lock = Lock(tmp_path / "busy")
    with serving(tmp_path) as server:
        yield ask(server, "/")[2]
    lock.release()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "done",
            ("2,330", "152", "15.3×", "14.9 to 15.8", "precision fp32 → bf16", "2026-11-21", "finished"),
        ),
        ("busy", ("Example GPU", "2.13.0", "running now: Baseline, best so far")),
        ("kept", ("2,330", "152", "15.3×", "Example GPU", "only its best.json was kept")),
        ("damaged", ("is not a readable StudyRequest",)),
    ],
)
def test_the_list_tells_of_each_study_what_it_came_to_where_and_whether_it_runs(
    index: str, name: str, told: tuple[str, ...]
) -> None:
    (line,) = re.findall(rf"<tr><td[^>]*>(?:<input [^>]*> )?(?:<a [^>]*>)?{name}<.*?</tr>", index)

    assert [text for text in told if text not in line] == []


def test_the_list_begins_with_what_runs_and_goes_on_with_the_newest(tmp_path: Path) -> None:
    for name, day in (("a", 20), ("b", 22), ("c", 21)):
        written(tmp_path / name, (), recommendation(measured_at=f"2026-11-{day}T10:00:00+00:00"))
    lock = Lock(tmp_path / "c")

    with serving(tmp_path) as server:
        page = ask(server, "/")[2]
    lock.release()

    assert re.findall(r'<a href="/studies/([^"]+)/"', page) == ["c", "b", "a"]


def test_only_studies_with_a_page_are_linked_and_compared(index: str) -> None:
    assert set(re.findall(r'href="/studies/([^"]+)/"', index)) == {"busy", "done"}
    assert re.findall(r'name="study" value="([^"]+)"', index) == ["busy", "done"]


def test_two_studies_that_are_ticked_are_compared_and_any_other_number_is_said(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        written(tmp_path / name, TRIALS[:2])

    with serving(tmp_path) as server:
        ticked, given, one, three = (
            ask(server, f"/compare?{query}")
            for query in ("study=a&study=b", "a=a&b=b", "study=a", "study=a&study=b&study=c")
        )

    assert re.findall("<h1>.*?</h1>", ticked[2]) == re.findall("<h1>.*?</h1>", given[2]) != []
    assert [answer[0] for answer in (ticked, one, three)] == [200, 400, 400]
    assert "tick two" in one[2]


def test_one_study_alone_has_no_tick_box(tmp_path: Path) -> None:
    written(tmp_path / "a", TRIALS[:2])

    with serving(tmp_path) as server:
        assert "checkbox" not in ask(server, "/")[2]
