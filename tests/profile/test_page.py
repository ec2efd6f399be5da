"""The page of a profile: one step as a strip, slow lines by what they cost, and nothing of a user's that is markup."""

import re

import pytest

from autotune.profile import nsys
from autotune.profile.chart import STRIP, blocks, memory, strip
from autotune.profile.page import render
from autotune.report.drawing import NARROW, WIDE
from tests.pages import Page
from tests.profiling import PARTS, profiled, readings, slow
from tests.worlds import GIB


def test_the_parts_of_a_step_lie_side_by_side_and_fill_it():
    found = [one for one in blocks(readings()) if one.row == 0]

    assert [one.part for one in found] == list(PARTS)
    assert [one.start for one in found] == pytest.approx([0, 0.01, 0.01, 0.05, 0.08, 0.095])
    assert found[-1].start + found[-1].seconds == pytest.approx(0.1)


def test_modules_lie_below_their_pass_by_their_share_backward_in_reverse():
    found = blocks(readings())

    forward = [one for one in found if one.row == 1 and one.part == "forward"]
    backward = [one for one in found if one.row == 1 and one.part == "backward"]
    assert [one.name for one in forward] == ["embed", "layers", "(loss)"]
    assert [one.name for one in backward] == ["(loss)", "layers", "embed"]
    assert sum(one.seconds for one in forward) == pytest.approx(0.040)  # of a pass of 10 ms in watched steps
    layers = forward[1]
    inside = [one for one in found if one.row == 2 and one.part == "forward"]
    assert [one.name for one in inside] == ["layers.0", "layers.1"]
    assert inside[0].start == pytest.approx(layers.start)
    assert sum(one.seconds for one in inside) == pytest.approx(layers.seconds)


@pytest.mark.parametrize("size", [STRIP, WIDE, NARROW], ids=lambda size: size.kind)
def test_no_block_leaves_the_strip_and_no_name_leaves_its_block(size):
    drawn = strip(readings()).svg(size)

    rights = [
        float(x) + float(w) for x, w in re.findall(r'class="block" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawn)
    ]
    assert rights
    assert max(rights) <= size.width + 0.2
    assert len(re.findall('class="inside"', drawn)) <= len(rights)


def test_the_strip_says_in_words_and_numbers_what_it_shows():
    shown = strip(readings())

    assert "forward 40.0 ms, 40%" in shown.summary
    assert shown.table.rows[2] == ("forward", "40.0 ms", "40%", "1.67×")


def test_memory_is_stacked_against_its_limit_unless_that_is_far_away():
    categories = [("parameters", 2 * GIB), ("activations", 6 * GIB)]

    near, far = memory(categories, 16 * GIB), memory(categories, 200 * GIB)

    assert near.title == "Memory: 8 GiB of 16 GiB"
    assert 'class="limit"' in near.svg()
    assert 'class="limit"' not in far.svg()
    assert near.table.rows[1] == ("activations", "6 GiB", "75%")
    assert "the limit is 16 GiB" in near.summary


def test_no_two_categories_of_memory_look_the_same():
    drawn = memory([(f"category {one}", GIB) for one in range(12)], 16 * GIB).svg(WIDE)

    marks = re.findall(r'<g class="(series\d)"><rect class="(\w+)" x="4.0" y="[\d.]+" width="12.0"', drawn)
    assert len(marks) == len(set(marks)) == 12


def test_slow_lines_stand_by_what_they_cost_with_the_line_and_what_to_write_instead():
    page = render(profiled(slow(share=0.1, place="model.py:5 in loss"), slow(share=0.3)))

    text = " ".join(Page(page).text.split())
    assert text.index("30.0 ms a step (30%)") < text.index("10.0 ms a step (10%)")
    assert "model.py:21 in loss" in text
    assert "Instead: keep a tensor (detach), read it now and then." in text
    assert 'value="0.3000"' in page


def test_nothing_found_is_said():
    assert "No line of yours was found that costs 1% of a step or more." in Page(render(profiled())).text


def test_a_page_brings_everything_it_needs_and_no_markup_of_the_users():
    hostile = "<script>alert(1)</script>"
    page = render(profiled(slow(code=hostile, place=hostile, what=hostile), left_out=(hostile,)))

    read = Page(page)
    assert read.tags.count("script") == 1  # ours
    assert read.open == []
    assert [text for _, name, text in read.attributes if name in ("src", "href")] == ["data:,"]
    assert "default-src &#39;none&#39;" in page


def test_the_command_of_nsight_names_a_capture_range_and_its_request_can_be_run(tmp_path):
    words = nsys.prepared(tmp_path, profiled().asked)

    assert words[:2] == ["nsys", "profile"]
    assert "--capture-range=cudaProfilerApi" in words
    assert '"extent": "captured"' in (tmp_path / "nsys" / "request.json").read_text()
    assert "trains on cpu" in nsys.not_run("cpu")
