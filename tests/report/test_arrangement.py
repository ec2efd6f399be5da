from __future__ import annotations

import pytest

from autotune.report.arrangement import MOST_ROWS, arranged
from autotune.report.chart import Chart, Table


def chart(name: str, height: int, note: str = "") -> Chart:
    table = Table(titles=("",), rows=(("",),))
    return Chart(name=name, title=name, summary="", table=table, draw=lambda _: [], height=height, note=note)


def rows(places: list[str], side: str) -> int:
    return sum(int(place.partition("rows")[2]) for place in places if place.startswith(side))


@pytest.mark.parametrize("heights", [(200, 200), (200, 500, 300), (100, 300, 250, 600), (250, 120, 110, 300, 320, 310)])
def test_both_columns_end_at_the_same_row_and_the_order_stays(heights: tuple[int, ...]) -> None:
    charts = [chart(str(index), height) for index, height in enumerate(heights)]

    placed = arranged(charts)

    places = [place for _, place in placed]
    assert [one for one, _ in placed] == charts
    assert places[0].startswith("left")
    assert rows(places, "left") == rows(places, "right") > 0


def test_no_card_has_much_more_room_than_it_needs() -> None:
    charts = [chart(str(index), height) for index, height in enumerate((250, 120, 110, 300, 320, 310))]

    alone = [int(arranged([one, one])[0][1].partition("rows")[2]) for one in charts]
    placed = [int(place.partition("rows")[2]) for _, place in arranged(charts)]

    assert max(room - need for room, need in zip(placed, alone, strict=True)) <= 3


def test_one_card_has_the_whole_width_and_a_very_tall_one_grows() -> None:
    assert arranged([]) == []
    assert [place for _, place in arranged([chart("a", 200)])] == [""]
    assert arranged([chart("a", 5000), chart("b", 100)])[0][1] == f"left rows{MOST_ROWS}"


def test_a_sentence_needs_room() -> None:
    brief, wordy = (arranged([chart("a", 200, note)] * 2)[0][1] for note in ("", "x" * 400))

    assert rows([wordy], "left") > rows([brief], "left")
