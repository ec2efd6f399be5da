"""The page of a profile as a browser shows it: at three widths, light and dark, with keys alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from autotune.profile.page import render
from tests.profiling import profiled, slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WIDTHS = {400: "narrow", 700: "wide", 1300: "strip"}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
SHOWN = """() => [...document.querySelectorAll('#strip svg')].filter((one) => one.getClientRects().length)
  .map((one) => one.getAttribute('class'))"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the page is found."""
    place: Path = tmp_path_factory.mktemp("profile") / "profile.html"
    place.write_text(render(profiled(slow(share=0.3), slow("collector", 0.1))), encoding="utf-8")
    return place.as_uri()


def test_the_page_fits_and_one_strip_is_shown_at_every_width(browser: Browser, address: str) -> None:
    with browser.new_context() as context:
        page, said, asked = context.new_page(), list[str](), list[str]()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        for width, kind in WIDTHS.items():
            for scheme in SCHEMES:
                page.set_viewport_size({"width": width, "height": 900})
                page.emulate_media(color_scheme=scheme)

                assert page.evaluate(FITS), f"{width} pixels, {scheme}"
                assert page.evaluate(SHOWN) == [kind]
        assert said == []
        assert [one for one in asked if not one.startswith("data:")] == [address]


def test_the_numbers_of_the_strip_open_by_key(browser: Browser, address: str) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(address)

        page.locator("#strip summary").focus()
        page.keyboard.press("Enter")

        assert page.locator("#strip .numbers table").is_visible()
        assert "forward" in page.locator("#strip .numbers table").inner_text()
