from __future__ import annotations

import dataclasses
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from autotune.report.page import render, render_index
from autotune.results import Outcome
from tests.reporting import ENVIRONMENT, FACTS, config, failed, ladder, measured, recommendation, trial, view, written

VOID = {"meta", "br", "link", "img", "input"}


class Reader(HTMLParser):
    """Collects tags, attributes and text, and checks that elements nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_answers_first_and_is_well_formed() -> None:
    page = Reader(render(view(ladder(), recommendation())))

    assert page.open == []
    assert page.text.index("15.3×") < page.text.index("2,330 samples/s") < page.text.index("Probes")
    assert page.tags.count("svg") == 2
    assert 'autotune.load_best("studies/resnet")' in page.text
    assert page.tags.count("tr") == 1 + len(ladder())


def test_the_page_needs_nothing_from_elsewhere() -> None:
    page = Reader(render(view(ladder(), recommendation())))

    assert {"script", "link", "img", "iframe"}.isdisjoint(page.tags)
    references = [value for _, name, value in page.attributes if name in ("href", "src")]
    assert references == [f"probes/{number:04d}/log.txt" for number in range(len(ladder()))]
    assert not [name for _, name, _ in page.attributes if name == "style" or name.startswith("on")]


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)></title></svg>{{ 7 * 7 }}"


def test_hostile_text_stays_text() -> None:
    facts = msgspec.structs.replace(FACTS, name=HOSTILE)
    machine = msgspec.structs.replace(ENVIRONMENT, device_name=HOSTILE, platform=HOSTILE)
    trials = (
        trial(0, config(), measured(100), "baseline"),
        trial(1, config(128, amp_dtype=HOSTILE), measured(90)),
        trial(2, config(256, num_workers=HOSTILE), failed(Outcome.USER_ERROR, HOSTILE)),
    )
    best = recommendation(
        model=HOSTILE, study=HOSTILE, stability=HOSTILE, reasons=(HOSTILE,), warnings=(HOSTILE,), measured_at=HOSTILE,
        params={**config().values, "amp_dtype": HOSTILE, HOSTILE: HOSTILE}, environment=machine,
    )  # fmt: skip
    study = view(trials, best, facts=facts, environment=machine, target=HOSTILE, created_at=HOSTILE)
    harmless = Reader(render(view(ladder(), recommendation())))

    for hostile in (study, dataclasses.replace(study, folder=Path("studies", HOSTILE.replace("/", "")))):
        page = Reader(render(hostile, served=True, nonce="n"))

        assert "script" not in page.tags
        assert "img" not in page.tags
        assert "onerror" not in {name for _, name, _ in page.attributes}
        assert {name for _, name, _ in page.attributes} <= {name for _, name, _ in harmless.attributes}
        assert HOSTILE in page.text
        assert "49" not in page.text.replace("49 GiB", "")


def test_only_a_served_page_of_a_running_study_asks_again() -> None:
    running, ended = view(ladder(), running=True), view(ladder())

    assert 'http-equiv="refresh"' in render(running, served=True)
    assert 'http-equiv="refresh"' not in render(running)
    assert 'http-equiv="refresh"' not in render(ended, served=True)


def test_without_a_recommendation_the_page_says_why() -> None:
    exhausted = tuple(trial(number, config(64 << number), failed()) for number in range(3))

    assert "Still measuring." in Reader(render(view(ladder(), running=True))).text
    assert "3 of 3 probes ended the same way: out of memory: tried to allocate" in Reader(render(view(exhausted))).text
    assert "No probe has finished." in Reader(render(view())).text
    assert "before its fastest configurations" in Reader(render(view((trial(0, config(), measured(9)),)))).text


@pytest.mark.parametrize("speedup", [1.01, None])
def test_no_factor_in_large_type_without_a_speed_up_beyond_the_noise(speedup: float | None) -> None:
    best = recommendation(speedup=speedup, speedup_low=speedup and 0.97, speedup_high=speedup and 1.05)

    page = Reader(render(view(ladder(), best)))

    assert ("span", "class", "factor") not in page.attributes
    assert ("span", "class", "state") in page.attributes


def test_the_index_shows_whole_bare_and_damaged_studies(tmp_path: Path) -> None:
    written(tmp_path / "whole", ladder()[:3], recommendation())
    written(tmp_path / "bare", (), recommendation())
    (tmp_path / "bare" / "study.json").unlink()
    written(tmp_path / "damaged", ())
    (tmp_path / "damaged" / "study.json").write_text("{")

    page = Reader(render_index([tmp_path / "whole", tmp_path / "bare", tmp_path / "damaged"]))

    assert [value for tag, name, value in page.attributes if tag == "a"] == ["whole/"]
    assert "only its best.json was kept" in page.text
    assert "study.json is not a readable StudyRequest" in page.text
    assert "There are no studies here yet." in Reader(render_index([])).text
