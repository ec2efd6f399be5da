"""The served page in a real browser: it follows the study by itself, and what the reader did to it stays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from autotune.core import codec
from autotune.core.requests import ProbeRequest
from autotune.dashboard.server import StudyServer
from autotune.study import disk
from autotune.study.lock import Lock
from autotune.study.progress import PROGRESS, SearchProgress
from autotune.testing import FakeLauncher
from tests.dashboard.test_live import add_probe
from tests.reporting import ladder, recommendation, written
from tests.serving import serving
from tests.worlds import declared, searched

RECORDED = Path(__file__).parents[2] / "studies"

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture
def study(tmp_path: Path) -> Path:
    written(tmp_path / "studies" / "resnet", ladder()[:12])
    return tmp_path / "studies" / "resnet"


@pytest.fixture
def server(study: Path) -> Iterator[StudyServer]:
    with serving(study.parent) as started:
        yield started


@pytest.fixture
def page(browser: Browser, server: StudyServer) -> Iterator[Page]:
    """The page of the study, at which nothing may be said on the console or asked of anybody else."""
    context = browser.new_context(viewport={"width": 900, "height": 700})
    opened, complaints = context.new_page(), []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda request: request.url.startswith(server.address) or complaints.append(request.url))
    with opened.expect_response(lambda response: response.request.resource_type == "fetch"):
        opened.goto(f"{server.address}studies/resnet/")
    yield opened
    context.close()
    assert [text for text in complaints if not text.startswith("data:")] == []


def wait_until(page: Page, expression: str) -> None:
    """Until it is true; `wait_for_function` would evaluate text in the page, which the page forbids."""
    for _ in range(300):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"never true: {expression}")


def says(text: str) -> str:
    return f"document.body.innerText.includes({text!r})"


def test_a_new_probe_appears_and_sorting_filter_open_rows_scrolling_and_focus_stay(page: Page, study: Path) -> None:
    page.locator("#probe-table th", has_text="samples/s").get_by_role("button").click()
    page.locator("#probe-table th", has_text="samples/s").get_by_role("button").click()
    page.locator("#probe-purpose").select_option("search")
    page.locator("#probe-words").fill("bf16")
    row = page.locator("#probe-table tbody tr:visible").nth(2)
    number = row.locator("td").first.inner_text()
    row.locator("summary").click()
    page.evaluate("window.scrollTo(0, document.getElementById('probes').offsetTop + 40)")
    page.locator("#probe-words").focus()
    before = page.evaluate("document.getElementById('probes').getBoundingClientRect().top")
    page.evaluate("document.getElementById('answer').dataset.mine = 'kept'")

    add_probe(study, 12, rate=9999)
    wait_until(page, "document.querySelectorAll('#probe-table tbody tr').length === 13")

    rows = page.locator("#probe-table tbody tr:visible")
    assert page.locator("#probe-table th[aria-sort=descending]").inner_text().strip().startswith("samples/s")
    assert rows.first.locator("td").first.inner_text() == "12"
    assert page.locator("#probe-words").input_value() == "bf16"
    assert page.locator("#probe-purpose").input_value() == "search"
    assert page.locator("#probe-table details[open]").evaluate("it => it.closest('tr').cells[0].textContent") == number
    assert page.evaluate("document.activeElement.id") == "probe-words"
    assert abs(page.evaluate("document.getElementById('probes').getBoundingClientRect().top") - before) < 2
    assert page.locator("#answer").get_attribute("data-mine") == "kept"  # it did not change, so it was not touched


def test_the_answer_appears_when_the_search_has_found_it(page: Page, study: Path) -> None:
    assert "No recommendation." in page.locator("#answer").inner_text()

    codec.write(study / disk.BEST, recommendation())

    wait_until(page, says("15.3×"))
    assert "15.3×" in page.locator("#answer").inner_text()


def test_a_search_that_begins_and_ends_is_seen(page: Page, study: Path) -> None:
    lock = Lock(study)
    wait_until(page, says("running now"))

    lock.release()
    wait_until(page, "!" + says("running now"))


class Held(FakeLauncher):
    """A fake machine on which the first probe of the ablation waits until it may go on."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.may_go_on = threading.Event()

    def run(self, request: Any, folder: Path) -> Any:
        """Answers from the model."""
        if isinstance(request, ProbeRequest) and request.purpose == "ablation":
            self.may_go_on.wait(60)
        return super().run(request, folder)


def test_the_ablation_is_seen_while_the_answer_stands(browser: Browser, tmp_path: Path) -> None:
    folder, launcher = tmp_path / "studies" / "fake", Held(facts=declared())
    folder.parent.mkdir()
    search = threading.Thread(target=lambda: searched(folder, launcher, probes=30, time_budget_seconds=1e6))
    search.start()
    with serving(folder.parent) as server:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(server.address)
        while not (folder / disk.BEST).exists():
            page.wait_for_timeout(100)
        page.goto(f"{server.address}studies/fake/")
        wait_until(page, says("now probe"))

        answer = page.locator("#answer")
        factor = answer.locator(".factor").inner_text()
        assert answer.locator("[aria-current=step]").inner_text() == "Ablation"
        assert "ablation: " in answer.inner_text() and "Measuring it without its changes" in answer.inner_text()
        assert "not measured yet" in answer.locator(".diff").inner_text()
        assert page.title() == f"{factor} fake · autotune"

        launcher.may_go_on.set()
        search.join()
        wait_until(page, "!" + says("running now"))
        assert "×" in answer.locator(".diff td.why").first.inner_text()
        assert answer.locator(".stages").count() == 0
        page.close()


def test_the_clock_of_a_search_is_never_empty(page: Page, study: Path) -> None:
    lock = Lock(study)
    codec.write(study / PROGRESS, SearchProgress(began_at=datetime.now(UTC).isoformat(), budget_seconds=600.0))
    wait_until(page, says("12 probes") + " && " + says("/ 10:00"))
    page.evaluate(
        """() => {
          window.seen = [];
          const look = () => window.seen.push(document.querySelector("span[data-since]").textContent);
          new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
        }"""
    )

    add_probe(study, 12)
    wait_until(page, says("13 probes"))

    seen = page.evaluate("window.seen")
    assert seen and "" not in seen
    lock.release()


def test_parts_that_come_and_go_find_their_place(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "studies" / "young"
    written(folder, ())
    with serving(folder) as server:
        page = browser.new_page()
        page.goto(server.address)
        assert page.locator("#probes, #throughput").count() == 0

        for number in range(3):
            add_probe(folder, number)
        page.wait_for_selector("#probes tbody tr:nth-child(3)")
        live = page.evaluate("[...document.querySelectorAll('section')].map(part => part.id)")
        page.reload()

        assert page.evaluate("[...document.querySelectorAll('section')].map(part => part.id)") == live
        page.close()


def test_a_server_that_went_away_is_said_and_what_was_known_stays(browser: Browser, study: Path) -> None:
    page = browser.new_page()
    with serving(study) as server:
        page.goto(server.address)
        rows = page.locator("#probe-table tbody tr").count()

    page.wait_for_selector("#autotune-live:has-text('does not answer any more')")
    assert page.locator("#probe-table tbody tr").count() == rows
    page.close()


def test_a_damaged_study_is_said_and_the_page_recovers(browser: Browser, server: StudyServer, study: Path) -> None:
    page = browser.new_page()
    page.goto(f"{server.address}studies/resnet/")
    whole = (study / disk.STUDY).read_bytes()

    (study / disk.STUDY).write_bytes(b"{")
    wait_until(page, says("is not a readable StudyRequest"))
    (study / disk.STUDY).write_bytes(whole)
    wait_until(page, "document.getElementById('autotune-live').textContent === ''")

    assert page.locator("#probe-table tbody tr").count() == 12
    page.close()


def test_two_studies_are_chosen_from_the_list_and_compared(browser: Browser, study: Path) -> None:
    written(study.parent / "other", tuple(ladder()[:3]))
    with serving(study.parent) as server:
        page = browser.new_page()
        page.goto(server.address)
        page.get_by_role("checkbox", name="Compare resnet").check()
        page.get_by_role("checkbox", name="Compare other").check()
        page.get_by_role("button", name="Compare").click()

        assert page.locator("h1").inner_text() == "other and resnet"
        assert page.locator("#shared tbody tr").count() == 3
        page.get_by_role("link", name="All studies").click()
        assert page.locator("h1").inner_text() == "Studies"
        page.close()


def test_a_comparison_of_shared_configurations_fits_a_telephone(browser: Browser, study: Path) -> None:
    written(study.parent / "other-with-a-name-that-is-longer", tuple(ladder()[:3]))
    wider = """() => [...document.querySelectorAll("main *, body > *")]
      .filter((it) => it.getBoundingClientRect().right > innerWidth || it.scrollWidth > it.clientWidth + 1)
      .map((it) => [it.tagName, it.className, it.scrollWidth, it.clientWidth, it.textContent.trim().slice(0, 60)])"""
    with serving(study.parent) as server:
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.goto(server.address + "compare?study=resnet&study=other-with-a-name-that-is-longer")

        assert page.locator("#shared tbody tr").count() == 3
        assert page.evaluate(wider) == []
        page.close()


def test_nothing_of_the_list_and_of_a_comparison_is_cut(browser: Browser) -> None:
    cut = """() => [...document.querySelectorAll(".scroll")]
      .filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.ariaLabel)"""
    with serving(RECORDED) as server:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        for place in ("", "compare?study=train-epyc&study=digits_cnn-epyc"):
            page.goto(server.address + place)
            assert page.evaluate(cut) == []

        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate(cut) == []
        page.goto(server.address)
        factor = page.locator("#study-table tbody td:nth-child(2)").first.bounding_box()
        assert factor is not None and factor["x"] + factor["width"] < 390 - 24
        page.close()
