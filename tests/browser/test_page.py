"""The page as a browser shows it: at three widths, in both colour schemes, with what a person does to it."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from autotune.core import codec
from autotune.core.records import Config
from autotune.report.card import card
from autotune.report.certainty import certainty
from autotune.report.chart import Chart
from autotune.report.charts import CHARTS
from autotune.report.page import render
from autotune.report.raster import png
from autotune.study.view import StudyView, load_view
from tests.reporting import config, failed, ladder, measured, paired, recommendation, trial, view, whole, written
from tests.studies import ANSWERED
from tests.worlds import earlier

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTHS: tuple[int, ...] = (400, 1000, 1600)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def numerical(folder: Path) -> StudyView:
    """A whole study with paired losses, on disk."""
    written(folder, whole(60), recommendation())
    asked, result = paired()
    place = folder / "stability" / "0000"
    place.mkdir(parents=True)
    codec.write(place / "request.json", asked)
    codec.write(place / "result.json", result)
    return load_view(folder)


def many_columns() -> StudyView:
    """A study in which every knob has moved."""
    known = config(32, gradient_accumulation_steps=2, amp_dtype="bfloat16", num_workers=8, channels_last=True)
    moved = {**known.values, "activation_checkpointing": True, "num_threads": 2, "omp_wait_policy": "passive",
             "compile_mode": "max-autotune-no-cudagraphs", "prefetch_factor": 4, "persistent_workers": False,
             "pin_memory": False, "allocator": "expandable_segments", "malloc": "tcmalloc", "fused_optimizer": "fused",
             "tf32": True, "cudnn_benchmark": True, "sdpa_backend": "flash"}  # fmt: skip
    return view((trial(0, config(), measured(152), "baseline"), trial(1, Config(values=moved), measured(300))))


STUDIES: dict[str, Callable[[Path], StudyView]] = {
    "whole": numerical,
    "digits_cnn": lambda _: ANSWERED["digits_cnn-xeon"](),
    "slow_loader": lambda _: ANSWERED["slow_loader-xeon"](),
    "failed": lambda _: view(tuple(trial(number, config(8 << number), failed()) for number in range(6))),
    "single": lambda _: view((trial(0, config(), measured(152), "baseline"),)),
    "once": lambda _: view(ladder()[:12], recommendation(rounds=1, relative_half_width=None)),
    "many columns": lambda _: many_columns(),
    "large": lambda _: view(whole(2000), recommendation()),
}


class Opened:
    """A page in the browser, and everything that it said or asked for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.console: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.console.append(message.text))
        page.on("pageerror", lambda error: self.console.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the pages lie that were opened before."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def open_study(browser: Browser, folder: Path) -> Iterator[Callable[..., Opened]]:
    yield from _opening(browser, folder)


def _opening(browser: Browser, folder: Path) -> Iterator[Callable[..., Opened]]:
    contexts = []

    def opened(name: str, width: int = 1000, scheme: Any = "light") -> Opened:
        file = folder / f"{name}.html"
        if not file.exists():
            study = ANSWERED[name]() if name in ANSWERED else STUDIES[name](folder / name)
            file.write_text(render(study), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        shown = Opened(context.new_page())
        shown.page.goto(file.as_uri())
        return shown

    yield opened
    for context in contexts:
        context.close()


# Texts of a chart that cover each other, measured with the real font.
OVERLAPS = """() => [...document.querySelectorAll("svg")].filter((svg) => svg.clientWidth).flatMap((svg) => {
  const boxes = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
  return boxes.flatMap(([one, a], place) => boxes.slice(place + 1)
    .filter(([, b]) => a.left + 1 < b.right && b.left + 1 < a.right && a.top + 4 < b.bottom && b.top + 4 < a.bottom)
    .map(([other]) => `${svg.ariaLabel.slice(0, 30)}: ${one} / ${other}`));
})"""
OUTSIDE = """() => [...document.querySelectorAll("svg text")].filter((text) => {
  const box = text.getBoundingClientRect(), frame = text.ownerSVGElement.getBoundingClientRect();
  return frame.width && (box.left < frame.left - 2 || box.right > frame.right + 2);
}).map((text) => text.textContent)"""
SMALLEST = """() => Math.min(...[...document.querySelectorAll("svg text")].map((text) => {
  const svg = text.ownerSVGElement, width = svg.getBoundingClientRect().width;
  return width ? 12 * width / svg.viewBox.baseVal.width : Infinity;
}))"""


@pytest.mark.parametrize("name", STUDIES)
def test_a_page_is_whole_and_quiet_at_any_width_light_and_dark(open_study: Callable[..., Opened], name: str) -> None:
    shown = open_study(name)
    for width, scheme in itertools.product(WIDTHS, SCHEMES) if name != "large" else [(1000, "light")]:
        shown.page.set_viewport_size({"width": width, "height": 900})
        shown.page.emulate_media(color_scheme=scheme)

        look = f"{width} pixels, {scheme}"
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= width, look
        assert shown.page.evaluate(OVERLAPS) == [], look
        assert shown.page.evaluate(OUTSIDE) == [], look
        assert shown.page.evaluate(SMALLEST) >= 9, look
        background = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness = sum(map(int, re.findall(r"[0-9]+", background)[:3]))
        assert (brightness > 600) is (scheme == "light"), look

    assert shown.console == []
    assert [url for url in shown.requests if not url.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize("name", ["digits_cnn", "slow_loader", "once"])
def test_on_a_phone_the_rate_of_a_probe_is_not_cut(open_study: Callable[..., Opened], name: str) -> None:
    page = open_study(name, width=390).page

    cut = page.evaluate(
        """() => { const right = document.querySelector("#probe-table").parentElement.getBoundingClientRect().right;
        return [...document.querySelectorAll("#probe-table td:nth-child(4)")]
          .filter((cell) => cell.getBoundingClientRect().right > right + 1).map((cell) => cell.textContent); }"""
    )

    assert cut == []


def column(page: Page, place: int) -> list[str]:
    return page.eval_on_selector_all(
        f"#probe-table tbody tr:not([hidden]) td:nth-child({place})", "cells => cells.map(cell => cell.textContent)"
    )


def place_of(page: Page, title: str) -> int:
    titles = page.eval_on_selector_all("#probe-table th", "cells => cells.map(cell => cell.textContent)")
    return 1 + [text.strip() for text in titles].index(title)


def test_a_click_on_a_title_sorts_by_value_with_the_unknown_last(open_study: Callable[..., Opened]) -> None:
    page = open_study("whole").page
    rate = place_of(page, "samples/s")
    rates = page.get_by_role("button", name="samples/s", exact=True)

    rates.click()
    ascending = column(page, rate)
    rates.press("Enter")
    descending = column(page, rate)

    numbers = [float(text.replace(",", "")) for text in ascending if text != "–"]
    assert numbers == sorted(numbers)
    assert ascending[-1] == descending[-1] == "–"
    assert descending[0] == "2,330"
    header = page.locator("#probe-table th", has_text="samples/s")
    assert header.get_attribute("aria-sort") == "descending"


def test_filters_narrow_the_table_and_say_by_how_much(open_study: Callable[..., Opened]) -> None:
    page = open_study("whole").page
    everything = len(column(page, 1))

    page.get_by_label("Outcome").select_option("unusable")
    unusable = len(column(page, 1))
    page.get_by_label("Find").fill("bf16 memory")
    words = column(page, place_of(page, "precision"))

    assert 0 < len(words) < unusable < everything
    assert set(words) == {"bf16"}
    assert page.locator("#probe-count").text_content() == f"{len(words)} of {everything} probes"


def test_what_was_sorted_and_filtered_survives_an_exchange_of_the_table(open_study: Callable[..., Opened]) -> None:
    page = open_study("whole").page
    page.get_by_role("button", name="samples/s", exact=True).click()
    page.get_by_label("Find").fill("fp16")
    before = column(page, 1)

    page.evaluate("""() => {
      const old = document.getElementById("probes"), fresh = old.cloneNode(true);
      const sorted = [...old.querySelectorAll("th")].map((title) => title.getAttribute("aria-sort"));
      const body = fresh.querySelector("#probe-table tbody");
      body.append(...[...body.rows].reverse());
      for (const row of body.rows) row.hidden = false;
      old.replaceWith(fresh);
      fresh.querySelector("#probe-words").value = "fp16";
      fresh.dispatchEvent(new CustomEvent("autotune:replaced", { bubbles: true, detail: { sorted } }));
    }""")

    assert sorted(column(page, 1)) == sorted(before)
    rates = [float(text.replace(",", "")) for text in column(page, place_of(page, "samples/s")) if text != "–"]
    assert rates == sorted(rates)


def test_copy_puts_the_dict_on_the_clipboard(browser: Browser, open_study: Callable[..., Opened]) -> None:
    page = open_study("whole").page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])

    page.get_by_text("Dict", exact=True).click()
    button = page.get_by_role("button", name="Copy Dict")
    button.click()
    page.wait_for_function("button => button.textContent === 'Copied'", arg=button.element_handle())

    copied = page.evaluate("navigator.clipboard.readText()")
    best = recommendation().params
    assert eval(copied) == {name: value for name, value in best.items() if value is not None and value is not False}


def test_a_mark_tells_its_probe_when_it_is_pointed_at(open_study: Callable[..., Opened]) -> None:
    page = open_study("whole").page

    page.locator("#throughput svg.wide circle.ring").first.hover(force=True)

    assert "2,330 samples/s" in str(page.locator("#tip").text_content())


def test_a_row_opens_by_keyboard(open_study: Callable[..., Opened]) -> None:
    page = open_study("whole").page
    details = page.locator("#probe-table details").first

    details.locator("summary").press("Enter")

    assert details.get_by_text("phases:").is_visible()


def test_without_scripts_the_page_shows_the_same(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(render(view(whole(), recommendation())), encoding="utf-8")
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(file.as_uri())

        assert page.locator("#probe-table tbody tr").count() == len(whole())
        assert page.locator("#throughput svg").first.is_visible()
        assert not page.get_by_role("button", name="Copy Your loop").is_visible()


def test_what_each_setting_is_worth_needs_no_script_and_no_mouse(browser: Browser, folder: Path) -> None:
    file = folder / "settings.html"
    file.write_text(render(ANSWERED["train-epyc"]()), encoding="utf-8")
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(file.as_uri())
        card = page.locator("#settings")

        assert "precision fp32 → bf16: 1.59× faster (1.31 to 1.93)" in str(
            card.locator("svg.wide").get_attribute("aria-label")
        )
        card.locator("summary").press("Enter")
        row = card.locator("tr", has_text="workers 1 instead of 0")
        assert "not measured; estimated 1.06× (0.79 to 1.41)" in row.inner_text()
        assert "1 probe that differs in other settings too" in row.inner_text()


def test_a_script_in_a_study_does_not_run(browser: Browser, tmp_path: Path) -> None:
    hostile = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    trials = (trial(0, config(), failed(message=hostile)), trial(1, config(8, amp_dtype=hostile), measured(9)))
    file = tmp_path / "page.html"
    file.write_text(render(view(trials, recommendation(model=hostile, warnings=(earlier(hostile),)))), encoding="utf-8")
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(file.as_uri())

        assert page.title() == "resnet · autotune"


def test_a_word_without_end_makes_no_page_wider(browser: Browser) -> None:
    endless = earlier("W" * 10_000 + "`" + "V" * 500 + "`")
    long = render(view(ladder()[:3], recommendation(model="M" * 300, warnings=(endless,), reasons=(endless,))))
    page = browser.new_page()
    page.set_content(long)
    page.evaluate("document.querySelectorAll('details').forEach((it) => { it.open = true; })")

    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_on_paper_there_are_no_controls_and_the_ink_is_dark(open_study: Callable[..., Opened]) -> None:
    page = open_study("whole", scheme="dark").page

    page.emulate_media(media="print")

    assert not page.get_by_label("Find").is_visible()
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 30, 43)"


def row(title: str) -> str:
    return f'#answer dt:text-is("{title}") + dd'


@pytest.fixture(scope="module", params=ANSWERED)
def answered(browser: Browser, folder: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Page, str]]:
    """The page of a study with an answer, for tests that only look at it, and the name of the study."""
    for open_study in _opening(browser, folder):
        yield open_study(request.param, width=1440).page, request.param


def test_five_questions_are_answered_without_scrolling(answered: tuple[Page, str]) -> None:
    page, name = answered
    page.set_viewport_size({"width": 1440, "height": 900})
    best = ANSWERED[name]().recommendation
    assert best is not None
    changes = best.params != best.baseline
    answers = {
        "what do I run": ["#answer .way .copy button:visible"],
        "how much faster": [".answer .headline, .answer .state", row("time")],
        "can I trust it": [row("speed"), *[".chip"] * (certainty(best) is not None)],
        "what did each change bring": [".diff" if changes else row("settings")],
        "what limits me now": [row("bottleneck")],
    }

    for question, places in answers.items():
        for place in places:
            box = page.locator(place).first.bounding_box()
            assert box is not None and box["y"] + box["height"] <= 900, f"{question}: {place}"


# Pixels of a card below its own content, and whether both columns end at the same height.
EMPTY = """() => [...document.querySelectorAll(".cards > section")].map((card) =>
  card.getBoundingClientRect().bottom - card.lastElementChild.getBoundingClientRect().bottom - 19)"""
ENDS = """() => ["left", "right"].map((side) =>
  Math.max(...[...document.querySelectorAll(`.${side}`)].map((card) => card.getBoundingClientRect().bottom)))"""


def test_no_place_beside_a_card_is_empty(answered: tuple[Page, str]) -> None:
    page, _ = answered
    for width in (1440, 1024, 900):
        page.set_viewport_size({"width": width, "height": 900})
        left, right = page.evaluate(ENDS)
        assert abs(left - right) < 25, width
        assert max(page.evaluate(EMPTY)) < 140, width  # a line of text is 20


CUT = "(it => it.scrollWidth - it.clientWidth)(document.querySelector('#probes .scroll'))"
WIDER_FONT = "document.querySelector('#probe-table').style.letterSpacing = '0.085em'"  # 15 % of an average character
# Of number, result and samples/s, those that cannot be seen whole when the table is scrolled to its end.
HIDDEN = """() => { const box = document.querySelector("#probes .scroll"); box.scrollLeft = 1e6;
  const frame = box.getBoundingClientRect(), row = document.querySelector("#probe-table tbody tr");
  return [1, 3, 4].filter((place) => { const cell = row.cells[place - 1], it = cell.getBoundingClientRect();
    const seen = [it.left + 4, it.right - 4].map((x) => document.elementFromPoint(x, it.top + 8));
    return it.left < frame.left - 1 || it.right > frame.right || !seen.every((one) => cell.contains(one)); }); }"""


@pytest.mark.parametrize("name", ["whole", "digits_cnn", "slow_loader", "train-epyc", "digits_cnn-epyc-forked"])
def test_no_column_of_the_probes_is_cut_on_a_desktop(open_study: Callable[..., Opened], name: str) -> None:
    page = open_study(name).page

    cut = {}
    for font in ("ours", "wider"):
        for width in range(860 if font == "ours" else 1000, 1921, 20):
            page.set_viewport_size({"width": width, "height": 900})
            if (pixels := page.evaluate(CUT)) > 0:
                cut[font, width] = pixels
        page.evaluate(WIDER_FONT)

    assert cut == {}


@pytest.mark.parametrize("width", [860, 1024, 1440])
def test_a_table_of_more_columns_than_fit_scrolls_below_number_result_and_throughput(
    open_study: Callable[..., Opened], width: int
) -> None:
    page = open_study("many columns", width=width).page
    page.locator("#probe-table").scroll_into_view_if_needed()

    assert page.evaluate(CUT) > 0
    assert page.evaluate(HIDDEN) == []
    page.evaluate(WIDER_FONT)
    assert page.evaluate(HIDDEN) == []


def test_ways_to_use_it_are_tabs_by_mouse_and_by_keyboard_and_without_scripts(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(render(view(whole(), recommendation())), encoding="utf-8")
    for scripts in (True, False):
        with browser.new_context(java_script_enabled=scripts) as context:
            page = context.new_page()
            page.goto(file.as_uri())

            page.get_by_text("Lightning", exact=True).click()
            assert page.locator("#use-lightning").is_visible() and not page.locator("#use-autotune").is_visible()
            page.keyboard.press("ArrowLeft")
            assert page.locator("#use-hf").is_visible() and page.locator(".way:visible").count() == 1


def test_a_picture_is_drawn_as_png_in_its_size(browser: Browser) -> None:
    best = recommendation()

    picture = png(card(view(ladder(), best), best))

    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24])) == (2400, 1260)


@pytest.mark.parametrize("name", ANSWERED)
def test_nothing_of_a_picture_reaches_its_edge(browser: Browser, name: str) -> None:
    study = ANSWERED[name]()
    assert study.recommendation is not None
    drawn = [draw(study) for draw in CHARTS.values()]
    files = [it.file() for it in drawn if isinstance(it, Chart)]
    page = browser.new_page()

    for picture in (card(study, study.recommendation), *files):
        page.set_content(picture)
        beyond = page.evaluate("""() => {
          const edge = document.querySelector("svg").getBoundingClientRect();
          const texts = [...document.querySelectorAll("svg text")];
          return texts.map((text) => [text.textContent, text.getBoundingClientRect()])
            .filter(([, box]) => box.left < edge.left + 4 || box.right > edge.right - 4 || box.bottom > edge.bottom)
            .map(([text]) => text);
        }""")
        assert beyond == []
    page.close()


def test_a_low_picture_is_whole(browser: Browser) -> None:
    red, low = '<rect width="520" height="124" fill="red"/>', 'viewBox="0 0 520 124"'

    picture = png(f'<svg xmlns="http://www.w3.org/2000/svg" width="1040" {low}>{red}</svg>')

    page = browser.new_page()
    page.set_content(f'<img src="data:image/png;base64,{base64.b64encode(picture).decode()}">')
    last = page.evaluate("""() => {
      const image = document.querySelector("img"), canvas = document.createElement("canvas");
      const [width, height] = [image.naturalWidth, image.naturalHeight], context = canvas.getContext("2d");
      Object.assign(canvas, { width, height });
      context.drawImage(image, 0, 0);
      return [...context.getImageData(5, height - 1, 1, 1).data, height];
    }""")
    page.close()
    assert last == [255, 0, 0, 255, 248]


def test_of_two_thousand_probes_a_hundred_are_shown_until_all_are_asked_for(open_study: Callable[..., Opened]) -> None:
    page = open_study("large").page
    rows = page.locator("#probe-table tbody tr:visible")
    assert rows.count() == 100

    page.get_by_label("Find").fill("fp16 memory")
    filtered = rows.count()
    page.get_by_label("Find").fill("")
    page.get_by_role("button", name="Show all 2000 probes").click()

    assert filtered > 0
    assert rows.count() == 2000
