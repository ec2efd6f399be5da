from __future__ import annotations

import itertools
from xml.etree import ElementTree

import msgspec
import pytest

from autotune.core.results import Outcome, Trial
from autotune.report.chart import Absence, Chart
from autotune.report.charts import CHARTS
from autotune.report.drawing import NARROW, WIDE, Size, text, width_of
from autotune.report.throughput_chart import curves, throughput
from autotune.study.recommendation import Recommendation
from tests.reporting import config, confirmed, failed, ladder, measured, recommendation, trial, view, whole

SPACE = "{http://www.w3.org/2000/svg}"


def drawn(chart: Chart | Absence, size: Size = WIDE) -> ElementTree.Element:
    assert isinstance(chart, Chart)
    return ElementTree.fromstring(chart.svg(size))


def charts_of(trials: tuple[Trial, ...], best: Recommendation | None = None) -> list[Chart | Absence]:
    return [draw(view(trials, best)) for draw in CHARTS.values()]


def texts(root: ElementTree.Element, kind: str | None = None) -> list[ElementTree.Element]:
    return [node for node in root.iter(f"{SPACE}text") if kind in (None, node.get("class"))]


def test_each_series_is_the_best_configuration_at_each_batch() -> None:
    trials = (
        trial(0, config(64, num_workers=0), measured(100)),
        trial(1, config(64, num_workers=8), measured(300)),
        trial(2, config(64, amp_dtype="bfloat16"), measured(500)),
    )

    found = curves(view(trials))

    assert [(curve.label, [one.trials[0].number for one in curve.fastest]) for curve in found] == [
        ("bf16", [2]),
        ("fp32", [1]),
    ]


def test_memory_runs_out_at_the_smallest_batch_above_all_that_ran() -> None:
    trials = (
        trial(0, config(64), measured(100)),
        trial(1, config(512), failed()),
        trial(2, config(256), failed()),
        trial(3, config(32), failed(Outcome.OOM_HOST)),
        trial(4, config(128), failed(Outcome.CRASHED)),
    )

    assert [curve.exhausted for curve in curves(view(trials))] == [256]


def test_what_may_be_used_comes_before_what_is_faster_and_may_not() -> None:
    beyond = measured(900, 79 * 2**30)
    trials = (trial(0, config(64), measured(100)), trial(1, config(64, num_workers=8), beyond))

    assert [one.trials[0].number for one in curves(view(trials))[0].fastest] == [0]


def test_a_chart_says_in_words_what_it_shows() -> None:
    root = drawn(throughput(view(ladder(), recommendation())))

    assert root.get("role") == "img"
    assert "against micro-batch" in str(root.get("aria-label"))
    titles = [node.text or "" for node in root.iter(f"{SPACE}title")]
    assert any("1024×1 bf16 workers 12 nhwc" in title and "(probe 6)" in title for title in titles)
    assert any("out of memory at 2,048" in title for title in titles)


def test_throughput_rings_the_recommended_point_and_marks_the_baseline() -> None:
    root = drawn(throughput(view(ladder(), recommendation())))

    rings = [node for node in root.iter(f"{SPACE}circle") if node.get("class") == "ring"]
    assert len(rings) == 3  # one is the key's, one stands in the panel of memory
    assert [node.text for node in texts(root, "note")] == ["baseline"]
    assert [node.text for node in texts(root, "good")] == ["recommended"]
    assert {node.text for node in texts(root, "axis")} == {
        "samples/s",
        "peak memory, GiB",
        "micro-batch, samples (log scale)",
    }


def test_the_recommended_point_has_the_rate_of_best_json_not_that_of_its_luckiest_probe() -> None:
    study = confirmed(ladder())
    best = study.recommendation
    assert best is not None

    chart = throughput(study)

    assert isinstance(chart, Chart)
    row = next(row for row in chart.table.rows if row[:2] == ("bf16 nhwc", "1,024"))
    assert row[3:5] == ("2,330", "0.8%")
    ring = next(node for node in drawn(chart).iter(f"{SPACE}circle") if node.get("class") == "ring")
    assert f"translate({ring.get('cx')} {ring.get('cy')})" in chart.svg()


def test_intervals_are_drawn_where_they_are_known() -> None:
    known = trial(0, config(64), measured(100, half_width=0.1))
    unknown = trial(1, config(128), measured(120, half_width=None))

    root = drawn(throughput(view((known, unknown))))

    assert len([node for node in root.iter(f"{SPACE}path") if node.get("class") == "interval"]) == 1


def test_memory_shows_the_limit_and_what_may_be_used_of_it() -> None:
    root = drawn(throughput(view(ladder())))

    assert [node.text for node in texts(root, "danger")] == ["limit 80 GiB", "usable 76 GiB"]


def test_a_limit_far_above_every_peak_is_a_sentence_unless_memory_ran_out() -> None:
    probes = (trial(0, config(64), measured(100, 2**30)), trial(1, config(512), failed()))

    far, near = throughput(view(probes[:1])), throughput(view(probes))

    assert isinstance(far, Chart)
    assert "Memory is no constraint: at most 1 GiB of 80 GiB." in far.note
    assert not texts(drawn(far), "danger")
    assert [node.text for node in texts(drawn(near), "danger")] == ["limit 80 GiB", "usable 76 GiB"]


def test_both_panels_share_their_axis_and_the_peaks_are_those_of_the_plotted_configurations() -> None:
    chart = throughput(view(ladder(), recommendation()))
    root = drawn(chart)

    lines: dict[str, list[list[str]]] = {}
    for group in root.iter(f"{SPACE}g"):
        line = next((node for node in group.iter() if node.get("class") == "line"), None)
        if line is not None:
            numbers = str(line.get("d"))[1:].split()
            lines.setdefault(str(group.get("class")), []).append(numbers[::2])
    assert isinstance(chart, Chart)
    assert lines and all(upper == lower for upper, lower in lines.values())
    row = next(row for row in chart.table.rows if row[:2] == ("bf16 nhwc", "1,024"))
    assert row[5] == "49.1 GiB"


def height(node: ElementTree.Element) -> float:
    """Pixels of an interval's bar, `M54.0 200.1V180.2m-3 0h6...`; 0 for anything else."""
    if node.get("class") != "interval":
        return 0.0
    bottom, _, rest = str(node.get("d")).partition("V")
    return float(bottom.split()[1]) - float(rest.partition("m")[0])


def test_what_was_measured_once_is_hollow_and_no_surer_than_what_was_measured_in_rounds() -> None:
    study = confirmed(ladder())
    best = study.recommendation
    assert best is not None

    chart = throughput(study)

    assert isinstance(chart, Chart)
    dots = [str(node.get("class")) for node in drawn(chart).iter() if str(node.get("class")).startswith("dot")]
    assert dots.count("dot hollow") > dots.count("dot") > 0
    assert {row[-1] for row in chart.table.rows} == {"one probe", "measured in rounds", "out of memory"}
    wide = msgspec.structs.replace(best, relative_half_width=0.3)
    lines = [sum(map(height, drawn(throughput(view(study.trials, answer))).iter())) for answer in (best, wide)]
    assert lines[1] > 5 * lines[0]


def test_where_one_micro_batch_was_tried_the_workers_are_the_axis() -> None:
    trials = tuple(trial(count, config(64, num_workers=count), measured(100.0 + count)) for count in (0, 2, 8))

    chart = throughput(view(trials))

    assert isinstance(chart, Chart)
    assert [row[1] for row in chart.table.rows] == ["0", "2", "8"]
    assert [node.text for node in texts(drawn(chart), "axis")] == ["samples/s", "loader workers"]


def test_a_batch_that_was_not_measured_does_not_make_batches_the_axis() -> None:
    trials = [trial(count, config(64, num_workers=count), measured(100.0 + count)) for count in (0, 2, 8)]
    unstable = trial(9, config(32), failed(Outcome.UNSTABLE))

    chart = throughput(view((*trials, unstable)))

    assert isinstance(chart, Chart)
    assert [node.text for node in texts(drawn(chart), "axis")] == ["samples/s", "loader workers"]


def test_of_two_arms_at_one_place_the_recommended_one_lies_on_top() -> None:
    arms = [config(64, channels_last=layout, num_workers=4) for layout in (True, False)]
    trials = tuple(
        trial(number, one, measured(rate)) for number, (one, rate) in enumerate(zip(arms, (101, 100), strict=True))
    )

    for best in arms:
        groups = drawn(throughput(view(trials, recommendation(params=best.values)))).iter(f"{SPACE}g")
        last = [group.get("class") for group in groups if str(group.get("class")).startswith("series")][-1]
        names = [curve.label for curve in curves(view(trials))]
        assert names[int(str(last).removeprefix("series"))] == ("nhwc" if best.values["channels_last"] else "nchw")


def test_what_is_not_done_is_no_part_of_a_name() -> None:
    arms = itertools.product((None, "bfloat16"), (False, True))
    trials = tuple(
        trial(number, config(64, amp_dtype=amp, activation_checkpointing=again), measured(100 + number))
        for number, (amp, again) in enumerate(arms)
    )

    assert {curve.label for curve in curves(view(trials))} == {"fp32", "fp32 ckpt", "bf16", "bf16 ckpt"}


def test_curves_differ_in_shape_as_well_as_in_colour() -> None:
    root = drawn(throughput(view(ladder())))

    shapes = {}
    for group in root.iter(f"{SPACE}g"):
        if str(group.get("class")).startswith("series"):
            dot = next(node for node in group.iter() if str(node.get("class")).startswith("dot"))
            shapes[group.get("class")] = dot.get("d")
    assert len(shapes) == 4
    assert len(set(shapes.values())) == 4


def close() -> tuple[Trial, ...]:
    """Micro-batches too near to each other for a tick each, and a baseline as fast as the recommendation."""
    batches = (1000, 1008, 1016, 1024, 1040, 1056, 1100)
    trials = [trial(number, config(batch, num_workers=12), measured(2300)) for number, batch in enumerate(batches)]
    chosen = config(1024, amp_dtype="bfloat16", num_workers=12, channels_last=True)
    return (trial(20, view().request.baseline, measured(2310)), *trials, trial(21, chosen, measured(2330)))


NEAR = recommendation(params=config(64).values)  # ringed at the very batch of the baseline, and as fast
STUDIES = {
    "whole": (whole(), recommendation()),
    "ladder": (ladder(), recommendation()),
    "single": ((trial(0, config(), measured(100), "baseline"),), None),
    "failed": (tuple(trial(number, config(8 << number), failed()) for number in range(4)), None),
    "empty": ((), None),
    "close": (close(), recommendation()),
    "near": (close(), NEAR),
}


@pytest.mark.parametrize("name", STUDIES)
def test_every_chart_is_drawn_in_both_sizes_with_its_table_or_says_why_not(name: str) -> None:
    trials, best = STUDIES[name]

    for chart in charts_of(trials, best):
        if isinstance(chart, Absence):
            assert chart.reason
            continue
        assert chart.summary
        assert chart.table.rows
        assert {len(row) for row in chart.table.rows} == {len(chart.table.titles)}
        for size in (WIDE, NARROW):
            assert "nan" not in chart.svg(size)
            for node in texts(drawn(chart, size)):
                assert box(node)[0] >= -1, (chart.name, node.text)
                assert box(node)[2] <= size.width + 12, (chart.name, node.text)


def box(node: ElementTree.Element) -> tuple[float, float, float, float]:
    if node.get("transform"):
        return (0.0, 0.0, 0.0, 0.0)
    wide, x, y = width_of(str(node.text)), float(str(node.get("x"))), float(str(node.get("y")))
    left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[str(node.get("text-anchor"))]
    return left, y - 9, left + wide, y + 2


@pytest.mark.parametrize("size", [WIDE, NARROW])
@pytest.mark.parametrize("name", ["whole", "ladder", "single", "close", "near"])
def test_texts_of_a_chart_do_not_overlap(name: str, size: Size) -> None:
    trials, best = STUDIES[name]

    for chart in charts_of(trials, best):
        if isinstance(chart, Chart):
            for one, other in itertools.combinations(texts(drawn(chart, size)), 2):
                (left, top, right, bottom), (left2, top2, right2, bottom2) = box(one), box(other)
                apart = right <= left2 or right2 <= left or bottom <= top2 or bottom2 <= top
                assert apart, (chart.name, one.text, other.text)


def test_a_text_with_control_characters_leaves_the_chart_well_formed() -> None:
    assert ElementTree.fromstring(text(0, 0, "a\x1b[1mb\n<c>", "tick")).text == "ab <c>"


def test_an_absent_chart_tells_its_reason() -> None:
    reasons = {it.name: it.reason for it in charts_of((trial(0, config(), measured(9)),)) if isinstance(it, Absence)}

    assert reasons == {
        "ranks": "one process trains",
        "finalists": "nothing was measured in rounds with the baseline",
        "precision": "no paired runs were made",
        "settings": "there is no recommendation",
        "history": "there are too few probes",
    }


def test_a_chart_as_a_file_says_what_it_shows_in_lines_that_fit() -> None:
    for name, (trials, best) in STUDIES.items():
        for chart in charts_of(trials, best):
            if isinstance(chart, Chart):
                root = ElementTree.fromstring(chart.file())
                head = [*texts(root, "title"), *texts(root, "takeaway")]
                told = " ".join(str(node.text) for node in head)
                assert told.lower() == f"{chart.title} {chart.takeaway}".strip().lower(), name


def test_a_chart_as_a_file_needs_no_page_and_escapes_what_it_shows() -> None:
    facts = msgspec.structs.replace(view().request.facts, name="<b>")
    chart = throughput(view((trial(0, config(64, amp_dtype="<i>&"), measured(9)),), facts=facts))

    assert isinstance(chart, Chart)
    root = ElementTree.fromstring(chart.file())
    assert "--series0" in str(next(root.iter(f"{SPACE}style")).text)
    assert any("<i>&" in str(node.text) for node in texts(root, "name"))
    assert [node.text for node in texts(root, "title")] == [chart.title]
    assert not [node for node in root.iter() if node.tag.endswith("}i")]
