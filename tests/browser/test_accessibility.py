"""No page keeps anybody out: axe-core finds no serious violation, at three widths, light and dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import pytest

from autotune.profile import page as profile_page
from autotune.profile.stage import slow_lines
from autotune.report.page import render
from tests.profiling import profiled, readings, slow
from tests.reporting import config, failed, ladder, recommendation, trial, view, whole, written
from tests.serving import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

axe = pytest.importorskip("axe_playwright_python.base", reason="axe-playwright-python (extra dev) is not installed")
# Contrast takes most of the time and depends on the colours alone, which served pages share with files.
LOOKS: tuple[tuple[int, Literal["light", "dark"], bool], ...] = (
    (1000, "light", True), (1000, "dark", True), (400, "light", False), (1600, "dark", False),
)  # fmt: skip
SERIOUS = """async (contrast) => {
  const rules = { "color-contrast": { enabled: contrast } };
  const { violations } = await axe.run(document, { resultTypes: ["violations"], rules });
  return violations.filter((found) => ["serious", "critical"].includes(found.impact))
    .map((found) => `${found.id}: ${found.nodes.slice(0, 3).map((node) => node.html).join(" | ")}`);
}"""
OWN = readings(slow(share=0.3), slow("collector", 0.1))
FILES: dict[str, Callable[[], str]] = {
    "failed": lambda: render(view(tuple(trial(number, config(8 << number), failed()) for number in range(4)))),
    "report": lambda: render(view(ladder()[:6], recommendation(slow_lines=slow_lines(OWN, 0.0)))),
    "profile": lambda: profile_page.render(profiled(slow(share=0.3), slow("collector", 0.1))),
}
CONTRASTED = ("dashboard", "index", "compare", "profile")
SERVED = {"dashboard": "studies/resnet/", "index": "", "compare": "compare?a=resnet&b=other"}


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Where each page is found."""
    place = tmp_path_factory.mktemp("pages")
    written(place / "studies" / "resnet", whole(14), recommendation())
    written(place / "studies" / "other", ladder()[:12])
    found = {}
    for name, make in FILES.items():
        (place / f"{name}.html").write_text(make(), encoding="utf-8")
        found[name] = (place / f"{name}.html").as_uri()
    with serving(place / "studies") as server:
        yield found | {name: server.address + path for name, path in SERVED.items()}


@pytest.mark.parametrize("name", [*FILES, *SERVED])
def test_axe_finds_no_serious_violation(browser: Browser, addresses: dict[str, str], name: str) -> None:
    source: Any = axe.AXE_FILE_PATH.read_text(encoding="utf-8")
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(addresses[name])
        page.evaluate(source)

        for width, scheme, contrast in LOOKS:
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)

            assert page.evaluate(SERIOUS, contrast and name in CONTRASTED) == [], f"{width} pixels, {scheme}"
